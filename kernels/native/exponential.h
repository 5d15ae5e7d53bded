// e^x of 16 lanes, within 1.01 units in the last place where the result is a normal float; below that it is 0.
//
// x = n ln 2 + r with |r| ≤ ln 2 / 2, and e^x = 2^n e^r. ln 2 in two parts and the polynomial for e^r are those of
// expf in S. L. Moshier's Cephes Mathematical Library (single/expf.c).
#pragma once

#include <limits>

#include "simd.h"

namespace mtplx {

inline vfloat exponential(vfloat x) {
  constexpr float kLowest = -87.336540f, kHighest = 88.722839f;  // ln of the least and the greatest normal float
  constexpr float kShifter = 12582912;  // 1.5 · 2^23: a sum with it is rounded to an integer, which its low bits hold
  constexpr float kInfinity = std::numeric_limits<float>::infinity();

  const vfloat shifted = x * 1.44269504088896341f + kShifter;
  const vfloat n = shifted - kShifter;
  const vfloat r = (x - n * 0.693359375f) - n * -2.12194440e-4f;

  vfloat p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;

  const vint power = reinterpret_cast<vint>(shifted) << 23;  // the shifter's own bits are shifted out
  vfloat y = reinterpret_cast<vfloat>(reinterpret_cast<vint>(p) + power);
  y = x < kLowest ? vfloat{} : y;
  y = x > kHighest ? broadcast(kInfinity) : y;
  return x == x ? y : x;
}

}  // namespace mtplx
