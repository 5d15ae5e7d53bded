// Vectors of 8 doubles, for what float rounding would spoil: large angles, and sums of many probabilities.
#pragma once

#include "simd.h"

namespace mtplx {

constexpr int kDoubleLanes = 8;

typedef double vdouble __attribute__((vector_size(8 * kDoubleLanes)));
typedef uint64_t vlong __attribute__((vector_size(8 * kDoubleLanes)));  // its sums wrap around
typedef float vhalf __attribute__((vector_size(4 * kDoubleLanes)));  // as many floats

// The same of one register.
constexpr int kDoublesPerRegister = kRegisterLanes / 2;
typedef double dregister __attribute__((vector_size(8 * kDoublesPerRegister)));
typedef uint64_t lregister __attribute__((vector_size(8 * kDoublesPerRegister)));
typedef float halfregister __attribute__((vector_size(4 * kDoublesPerRegister)));

inline dregister load_doubles(const float* from) { return __builtin_convertvector(load<halfregister>(from), dregister); }

inline vhalf to_floats(const vdouble& v) { return __builtin_convertvector(v, vhalf); }

// v rounded to integers, as a double and, in the low bits, as an integer; |v| < 2^51.
template <typename Doubles, typename Longs>
struct Rounded {
  Doubles value;
  Longs bits;
};
template <typename Longs, typename Doubles>
inline Rounded<Doubles, Longs> round_to_longs(const Doubles& v) {
  constexpr double kShifter = 6755399441055744;  // 1.5 · 2^52: a sum with it is an integer, which its low bits hold
  const Doubles shifted = v + kShifter;
  return {shifted - kShifter, reinterpret_cast<Longs>(shifted)};
}

// e^x for x ≤ 0, to a few units in the last place; 0 below the least normal double.
inline dregister exponential(const dregister& x) {
  constexpr double kLowest = -708;
  constexpr double kLog2High = 0x1.62e42fefap-1, kLog2Low = 0x1.cf79abc9e3b39p-40;  // ln 2, its first 37 bits apart
  const auto n = round_to_longs<lregister>(x * 1.4426950408889634);
  const dregister r = (x - n.value * kLog2High) - n.value * kLog2Low;
  dregister p = r * (1.0 / 6227020800) + 1.0 / 479001600;  // Σ r^k / k!, k ≤ 13
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
  const dregister y = reinterpret_cast<dregister>(reinterpret_cast<lregister>(p) + (n.bits << 52));
  return x < kLowest ? dregister{} : y;
}

// A sum of vectors of 8 doubles, register by register.
struct DoubleSums {
  dregister registers[kRegistersPerVector] = {};

  double sum() const { return mtplx::sum(load<vdouble>(registers)); }
};

}  // namespace mtplx
