#include "machine.h"

namespace mtplx {

const char* isa() {
#if defined(__AVX512F__)
  return "avx512";
#elif defined(__AVX2__)
  return "avx2";
#elif defined(__ARM_NEON)
  return "neon";
#else
  return "generic";
#endif
}

// Of an ARM processor no more than NEON is asked, which all have, unless it was built for that very machine.
bool runs_here() {
  bool has = true;
#if defined(__x86_64__)
#define MTPLX_REQUIRE(feature) has = has && __builtin_cpu_supports(feature)
#ifdef __AVX__
  MTPLX_REQUIRE("avx");
#endif
#ifdef __AVX2__
  MTPLX_REQUIRE("avx2");
#endif
#ifdef __FMA__
  MTPLX_REQUIRE("fma");
#endif
#ifdef __BMI2__
  MTPLX_REQUIRE("bmi2");
#endif
#ifdef __AVX512F__
  MTPLX_REQUIRE("avx512f");
#endif
#ifdef __AVX512BW__
  MTPLX_REQUIRE("avx512bw");
#endif
#ifdef __AVX512DQ__
  MTPLX_REQUIRE("avx512dq");
#endif
#ifdef __AVX512VL__
  MTPLX_REQUIRE("avx512vl");
#endif
#ifdef __AVX512VBMI__
  MTPLX_REQUIRE("avx512vbmi");
#endif
#ifdef __AVX512VNNI__
  MTPLX_REQUIRE("avx512vnni");
#endif
#ifdef __AVXVNNI__
  MTPLX_REQUIRE("avxvnni");
#endif
#ifdef __AVX512FP16__
  MTPLX_REQUIRE("avx512fp16");
#endif
#ifdef __AVX512VBMI2__
  MTPLX_REQUIRE("avx512vbmi2");
#endif
#ifdef __F16C__
  MTPLX_REQUIRE("f16c");
#endif
#ifdef __AVX512BF16__
  MTPLX_REQUIRE("avx512bf16");
#endif
#endif
  return has;
}

bool is_quick_at_int16() {
#if defined(__AVX2__)
  return true;
#else
  return false;
#endif
}

int float_bytes() {
#if defined(__AVX512VNNI__)
  return 3;
#else
  return 0;
#endif
}

}  // namespace mtplx
