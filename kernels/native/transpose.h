// A square of 16 vectors turned over.
#pragma once

#include <utility>

#include "simd.h"

namespace mtplx {

// 16 rows become 16 columns: blocks of 8, 4, 2 and 1 lanes beside the diagonal change places.
template <int Distance, int... Lane>
inline __attribute__((always_inline)) void exchange(vfloat (&rows)[kLanes], std::integer_sequence<int, Lane...> lanes) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i++) {
    if (i & Distance) continue;
    const vfloat a = rows[i], b = rows[i + Distance];
    rows[i] = __builtin_shufflevector(a, b, (Lane & Distance ? kLanes + Lane - Distance : Lane)...);
    rows[i + Distance] = __builtin_shufflevector(a, b, (Lane & Distance ? kLanes + Lane : Lane + Distance)...);
  }
  if constexpr (Distance > 1) exchange<Distance / 2>(rows, lanes);
}

inline __attribute__((always_inline)) void transpose(vfloat (&rows)[kLanes]) {
  exchange<kLanes / 2>(rows, std::make_integer_sequence<int, kLanes>{});
}

}  // namespace mtplx
