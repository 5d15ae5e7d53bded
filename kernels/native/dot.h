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

// upper · 256 + lower, for an `upper` that 16 bits hold.
inline vint joined(const vint& upper, const vint& lower) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<vint>(_mm512_dpwssd_epi32(reinterpret_cast<__m512i>(lower), reinterpret_cast<__m512i>(upper),
                                                    _mm512_set1_epi32(256)));  // of each lane's two halves, the lower
#else
  return (upper << 8) + lower;
#endif
}

// What belongs to each byte of whole numbers, the highest first.
template <int Bytes>
struct ByteVectors {
  vint bytes[Bytes];
};

// Sums of products with each byte. Small weights let the two highest join after each block: one step less than joining
// them at the end.
template <int Bytes, bool AreSmall>
struct ByteSums {
  static constexpr bool kAreJoined = AreSmall && Bytes == 2;
  vint bytes[Bytes];

  inline void end_block() {
    if constexpr (kAreJoined) bytes[1] = joined(bytes[0], bytes[1]), bytes[0] = vint{};
  }

  // What they stand for. Those of a group are below 2^22, so the two highest together fit a lane.
  inline vfloat number() const {
    if constexpr (kAreJoined) return to_float(bytes[1]);
    if constexpr (Bytes == 1) return to_float(bytes[0]);
    const vfloat upper = to_float((bytes[0] << 8) + bytes[1]);
    if constexpr (Bytes == 2) return upper;
    return upper * 256.0f + to_float(bytes[Bytes - 1]);
  }
};

}  // namespace mtplx
