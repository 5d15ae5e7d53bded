// Floats read out of float32 or float16 memory, and written to it. What is read is exact, what is written is rounded to
// nearest, ties to even.
//
// GCC 12 converts a vector of float16 lane by lane, which x86 does in one instruction: hence the intrinsics. Those
// without a mask start from an undefined vector, of which it warns.
#pragma once

#include "simd.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace mtplx {

typedef _Float16 float16;
typedef float vfloat4 __attribute__((vector_size(16)));
typedef float vfloat8 __attribute__((vector_size(32)));

template <typename Vector>
inline void read(const float* from, Vector& to) {
  to = load<Vector>(from);
}

inline void write(const vfloat& from, float* to) { store(to, from); }

#ifdef __F16C__

inline void read(const float16* from, vfloat4& to) {
  to = reinterpret_cast<vfloat4>(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}

inline void read(const float16* from, vfloat8& to) {
  to = reinterpret_cast<vfloat8>(_mm256_cvtph_ps(load<__m128i>(from)));
}

#ifdef __AVX512F__

inline void read(const float16* from, vfloat& to) {
  to = reinterpret_cast<vfloat>(_mm512_maskz_cvtph_ps(0xffff, load<__m256i>(from)));
}

inline void write(const vfloat& from, float16* to) {
  store(to, _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(from), _MM_FROUND_TO_NEAREST_INT));
}

#else

inline void write(const vfloat& from, float16* to) {
  __m256 halves[2];
  store(halves, from);
  store(to, _mm256_cvtps_ph(halves[0], _MM_FROUND_TO_NEAREST_INT));
  store(to + 8, _mm256_cvtps_ph(halves[1], _MM_FROUND_TO_NEAREST_INT));
}

#endif
#else

typedef float16 vfloat16x4 __attribute__((vector_size(8)));
typedef float16 vfloat16x16 __attribute__((vector_size(2 * kLanes)));

inline void read(const float16* from, vfloat4& to) {
  to = __builtin_convertvector(load<vfloat16x4>(from), vfloat4);
}

inline void write(const vfloat& from, float16* to) { store(to, __builtin_convertvector(from, vfloat16x16)); }

#endif

}  // namespace mtplx
