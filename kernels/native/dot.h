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

// What belongs to each byte of whole numbers, the highest first.
template <int Bytes>
struct ByteVectors {
  vint bytes[Bytes];
};

// What sums of each byte stand for. The sums of a group are below 2^22, so the two highest together fit a lane.
template <int Bytes>
inline vfloat number_of(const ByteVectors<Bytes>& sums) {
  if constexpr (Bytes == 1) return to_float(sums.bytes[0]);
  const vfloat upper = to_float((sums.bytes[0] << 8) + sums.bytes[1]);
  if constexpr (Bytes == 2) return upper;
  return upper * 256.0f + to_float(sums.bytes[Bytes - 1]);
}

}  // namespace mtplx
