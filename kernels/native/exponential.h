// e^x and tanh x of a register's lanes. e^x is within 1.01 units in the last place where that is a normal float, and 0 below.
//
// x = n ln 2 + r with |r| ≤ ln 2 / 2, and e^x = 2^n e^r. ln 2 in two parts and the polynomial for e^r are those of
// expf in S. L. Moshier's Cephes Mathematical Library (single/expf.c).
#pragma once

#include <limits>

#include "simd.h"

namespace mtplx {

inline vregister exponential(vregister x) {
  constexpr float kLowest = -87.336540f, kHighest = 88.722839f;  // ln of the least and the greatest normal float
  constexpr float kShifter = 12582912;  // 1.5 · 2^23: a sum with it is rounded to an integer, which its low bits hold
  constexpr float kInfinity = std::numeric_limits<float>::infinity();

  const vregister shifted = x * 1.44269504088896341f + kShifter;
  const vregister n = shifted - kShifter;
  const vregister r = (x - n * 0.693359375f) - n * -2.12194440e-4f;

  vregister p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;

  const uregister power = reinterpret_cast<uregister>(shifted) << 23;  // the shifter's own bits are shifted out
  vregister y = reinterpret_cast<vregister>(reinterpret_cast<uregister>(p) + power);  // unsigned, for a sign to be carried over
  y = x < kLowest ? vregister{} : y;
  y = x > kHighest ? fill_register(kInfinity) : y;
  return x == x ? y : x;
}

// tanh x, within 1.5 units in the last place. The polynomial for small x is that of Cephes too (single/tanhf.c).
inline vregister hyperbolic_tangent(vregister x) {
  const vregister size = x < 0 ? -x : x;
  const vregister far = 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
  const vregister x2 = x * x;
  vregister p = -5.70498872745e-3f * x2 + 2.06390887954e-2f;
  p = p * x2 - 5.37397155531e-2f;
  p = p * x2 + 1.33314422036e-1f;
  p = p * x2 - 3.33332819422e-1f;
  const vregister near = p * x2 * x + x;
  return size < 0.625f ? near : (x < 0 ? -far : far);
}

}  // namespace mtplx
