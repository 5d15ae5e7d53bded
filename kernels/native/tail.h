// The end of a row, where fewer values than a vector holds may be left. A value's bits don't depend on where it stands.
#pragma once

#include <algorithm>

#include "simd.h"

namespace mtplx {

// `count` values, and zeros in the other lanes.
inline __attribute__((always_inline)) vfloat load_first(const float* from, int count) {
  if (count == kLanes) return load<vfloat>(from);
  vfloat v = {};
  std::memcpy(&v, from, count * sizeof(float));
  return v;
}

inline __attribute__((always_inline)) void store_first(float* to, const vfloat& v, int count) {
  if (count == kLanes) return store(to, v);
  std::memcpy(to, &v, count * sizeof(float));
}

// Calls `step(first, count)` for each vector of [0, n): count is a constant for all but the last.
template <typename Step>
inline __attribute__((always_inline)) void for_each_vector(int n, Step step) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, kLanes);
  if (i < n) step(i, n - i);
}

// Σ term(first, count) over the vectors of [0, n), in four sums that take turns: a chain of additions would wait for
// each other.
template <typename Term>
inline __attribute__((always_inline)) float sum_of_vectors(int n, Term term) {
  vfloat totals[4] = {};
  int i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; j++) totals[j] += term(i + j * kLanes, kLanes);
  for (int j = 0; i < n; i += kLanes, j++) totals[j] += term(i, std::min(n - i, kLanes));
  return sum((totals[0] + totals[1]) + (totals[2] + totals[3]));
}

}  // namespace mtplx
