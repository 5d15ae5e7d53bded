// Vectors of 8 doubles, for what float rounding would spoil: large angles, and sums of many probabilities.
#pragma once

#include "simd.h"

namespace mtplx {

constexpr int kDoubleLanes = 8;

typedef double vdouble __attribute__((vector_size(8 * kDoubleLanes)));
typedef uint64_t vlong __attribute__((vector_size(8 * kDoubleLanes)));  // its sums wrap around
typedef float vhalf __attribute__((vector_size(4 * kDoubleLanes)));  // as many floats

inline vdouble load_doubles(const float* from) { return __builtin_convertvector(load<vhalf>(from), vdouble); }

inline vhalf to_floats(const vdouble& v) { return __builtin_convertvector(v, vhalf); }

inline double sum(vdouble v) {
  for (int width = kDoubleLanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; lane++) v[lane] += v[lane + width];
  return v[0];
}

// v rounded to integers, as a double and, in the low bits, as an integer; |v| < 2^51.
struct Rounded {
  vdouble value;
  vlong bits;
};
inline Rounded round(const vdouble& v) {
  constexpr double kShifter = 6755399441055744;  // 1.5 · 2^52: a sum with it is an integer, which its low bits hold
  const vdouble shifted = v + kShifter;
  return {shifted - kShifter, reinterpret_cast<vlong>(shifted)};
}

// e^x for x ≤ 0, to a few units in the last place; 0 below the least normal double.
inline vdouble exponential(const vdouble& x) {
  constexpr double kLowest = -708;
  constexpr double kLog2High = 0x1.62e42fefap-1, kLog2Low = 0x1.cf79abc9e3b39p-40;  // ln 2, its first 37 bits apart
  const Rounded n = round(x * 1.4426950408889634);
  const vdouble r = (x - n.value * kLog2High) - n.value * kLog2Low;
  vdouble p = r * (1.0 / 6227020800) + 1.0 / 479001600;  // Σ r^k / k!, k ≤ 13
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const vdouble y = reinterpret_cast<vdouble>(reinterpret_cast<vlong>(p) + (n.bits << 52));
  return x < kLowest ? vdouble{} : y;
}

}  // namespace mtplx
