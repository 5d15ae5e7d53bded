// Floats read out of float32 or float16 memory, and written to it. What is read is exact, what is written is rounded to
// nearest, ties to even.
//
// GCC 12 converts a vector of float16 lane by lane, which x86 does in one instruction: hence the intrinsics. Those without a
// mask start from an undefined vector, of which it warns.
#pragma once

#include "simd.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace mtplx {

typedef _Float16 float16;
typedef float vfloat4 __attribute__((vector_size(16)));

inline vfloat load_floats(const float* from) { return load<vfloat>(from); }
inline vfloat4 load_four_floats(const float* from) { return load<vfloat4>(from); }
inline void store_floats(float* to, vfloat v) { store(to, v); }

#ifdef __F16C__

inline vfloat load_floats(const float16* from) {
#ifdef __AVX512F__
  return reinterpret_cast<vfloat>(_mm512_maskz_cvtph_ps(0xffff, load<__m256i>(from)));
#else
  const __m256 parts[2] = {_mm256_cvtph_ps(load<__m128i>(from)), _mm256_cvtph_ps(load<__m128i>(from + 8))};
  return load<vfloat>(parts);
#endif
}

inline vfloat4 load_four_floats(const float16* from) {
  return reinterpret_cast<vfloat4>(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}

inline void store_floats(float16* to, vfloat v) {
#ifdef __AVX512F__
  store(to, _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
#else
  __m256 parts[2];
  store(parts, v);
  store(to, _mm256_cvtps_ph(parts[0], _MM_FROUND_TO_NEAREST_INT));
  store(to + 8, _mm256_cvtps_ph(parts[1], _MM_FROUND_TO_NEAREST_INT));
#endif
}

#else

typedef float16 vfloat16 __attribute__((vector_size(2 * kLanes)));
typedef float16 vfloat16x4 __attribute__((vector_size(8)));

inline vfloat load_floats(const float16* from) { return __builtin_convertvector(load<vfloat16>(from), vfloat); }
inline vfloat4 load_four_floats(const float16* from) { return __builtin_convertvector(load<vfloat16x4>(from), vfloat4); }
inline void store_floats(float16* to, vfloat v) { store(to, __builtin_convertvector(v, vfloat16)); }

#endif

}  // namespace mtplx
