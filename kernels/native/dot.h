// Dot products of small whole numbers within each lane: of four bytes, or of two numbers of 16 bits.
#pragma once

#include "simd.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace mtplx {

// t += x, and no sooner or later: GCC would rather make all products of a loop first, and keep them in memory.
inline void add_now(const iregister& x, iregister& t) {
  t += x;
#if defined(__x86_64__)
  asm("" : "+x"(t));
#endif
}

#if defined(__AVX512BW__)
inline iregister multiply_pairs(const iregister& a, const iregister& b) {
  return reinterpret_cast<iregister>(_mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
#elif defined(__AVX2__) && !defined(__AVX512F__)
inline iregister multiply_pairs(const iregister& a, const iregister& b) {
  return reinterpret_cast<iregister>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
#else
// Σ a·b over the two halves of each lane, which have signs.
inline iregister multiply_pairs(const iregister& a, const iregister& b) {
  return (a >> 16) * (b >> 16) + ((a << 16) >> 16) * ((b << 16) >> 16);
}
#endif

// t += Σ w·x over the four bytes of each lane, those of w without sign, those of x with one. Exact: nothing saturates.
template <bool AreSmall>
inline void add_dots(const iregister& w, const iregister& x, iregister& t) {
#if defined(__AVX512VNNI__)
  t = reinterpret_cast<iregister>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(t), reinterpret_cast<__m512i>(w),
                                                      reinterpret_cast<__m512i>(x)));
#elif defined(__AVXVNNI__)
  t = reinterpret_cast<iregister>(_mm256_dpbusd_avx_epi32(reinterpret_cast<__m256i>(t), reinterpret_cast<__m256i>(w),
                                                          reinterpret_cast<__m256i>(x)));
#else
#if defined(__AVX2__) && !defined(__AVX512F__)
  if constexpr (AreSmall) {  // two products of such weights have a sum that 16 bits hold
    const auto sums = _mm256_maddubs_epi16(reinterpret_cast<__m256i>(w), reinterpret_cast<__m256i>(x));
    add_now(multiply_pairs(reinterpret_cast<iregister>(sums), fill_register(0x00010001)), t);
    return;
  }
#endif
  const auto upper = [](const iregister& v) { return reinterpret_cast<iregister>(reinterpret_cast<hregister>(v) >> 8); };
  const iregister mask = fill_register(0x00ff00ff);
  add_now(multiply_pairs(w & mask, upper(reinterpret_cast<iregister>(reinterpret_cast<hregister>(x) << 8))), t);
  add_now(multiply_pairs((w >> 8) & mask, upper(x)), t);
#endif
}

// upper · 256 + lower, for an `upper` that 16 bits hold.
inline iregister joined(const iregister& upper, const iregister& lower) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<iregister>(_mm512_dpwssd_epi32(reinterpret_cast<__m512i>(lower), reinterpret_cast<__m512i>(upper),
                                                         _mm512_set1_epi32(256)));  // of each lane's two halves, the lower
#else
  return (upper << 8) + lower;
#endif
}

// What belongs to each byte of whole numbers, the highest first.
template <int Bytes>
struct ByteVectors {
  iregister bytes[Bytes];
};

// Sums of products with each byte. Small weights let the two highest join after each block: one step less than joining
// them at the end.
template <int Bytes, bool AreSmall>
struct ByteSums {
  static constexpr bool kAreJoined = AreSmall && Bytes == 2;
  iregister bytes[Bytes];

  inline void end_block() {
    if constexpr (kAreJoined) bytes[1] = joined(bytes[0], bytes[1]), bytes[0] = iregister{};
  }

  // What they stand for. Those of a group are below 2^22, so the two highest together fit a lane.
  inline vregister number() const {
    if constexpr (kAreJoined) return to_float(bytes[1]);
    if constexpr (Bytes == 1) return to_float(bytes[0]);
    const vregister upper = to_float((bytes[0] << 8) + bytes[1]);
    if constexpr (Bytes == 2) return upper;
    return upper * 256.0f + to_float(bytes[Bytes - 1]);
  }
};

// The sum of products of pairs.
struct PairSum {
  iregister sum;

  inline vregister number() const { return to_float(sum); }
};

}  // namespace mtplx
