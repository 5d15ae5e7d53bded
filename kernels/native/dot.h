// Dot products of bytes, four to a lane.
#pragma once

#include "simd.h"

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#include <immintrin.h>
#endif

namespace mtplx {

// t += Σ w·x over the four bytes of each lane, those of w without sign, those of x with one. Exact: nothing saturates.
inline void add_dots(const vint& w, const vint& x, vint& t) {
#if defined(__AVX512VNNI__)
  t = reinterpret_cast<vint>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(t), reinterpret_cast<__m512i>(w),
                                                 reinterpret_cast<__m512i>(x)));
#elif defined(__AVXVNNI__)
  __m256i sums[2], weights[2], inputs[2];
  std::memcpy(sums, &t, sizeof t), std::memcpy(weights, &w, sizeof w), std::memcpy(inputs, &x, sizeof x);
  for (int i = 0; i < 2; i++) sums[i] = _mm256_dpbusd_avx_epi32(sums[i], weights[i], inputs[i]);
  std::memcpy(&t, sums, sizeof t);
#else
  for (int shift = 0; shift < 32; shift += 8) t += ((w >> shift) & 0xff) * ((x << (24 - shift)) >> 24);
#endif
}

}  // namespace mtplx
