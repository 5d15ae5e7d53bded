// Activations of a row, and their products with a second one. Knows arithmetic; knows no MLX.
#pragma once

#include "exponential.h"
#include "tail.h"

namespace mtplx {

struct Silu {  // x σ(x)
  vfloat operator()(const vfloat& x) const { return x / (1.0f + exponential(-x)); }
};

struct GeluTanh {  // x (1 + tanh z) / 2 with z = √(2/π) (x + 0.044715 x³): that is x σ(2z)
  vfloat operator()(const vfloat& x) const {
    const vfloat z2 = x * (1.5957691216f + 0.0713548162726f * (x * x));
    return x / (1.0f + exponential(-z2));
  }
};

struct Gelu {  // x Φ(x), where 2 Φ(-|x|) = erfc(|x| / √2): Abramowitz and Stegun, 7.1.26, within 1.5e-7
  vfloat operator()(const vfloat& x) const {
    const vfloat z = (x < 0 ? -x : x) * 0.70710678118654752f;
    const vfloat t = 1.0f / (1.0f + 0.3275911f * z);
    vfloat p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const vfloat below = 0.5f * (p * t) * exponential(-z * z);
    return x * (x < 0 ? below : 1.0f - below);
  }
};

// out [n] = activation(x) · up, or activation(x) alone where up is null. May write where it reads.
template <typename Activation>
inline void activate_row(const float* x, const float* up, int n, float* out) {
  const Activation activation;
  for_each_vector(n, [&](int i, int count) __attribute__((always_inline)) {
    vfloat v = activation(load_first(x + i, count));
    if (up) v *= load_first(up + i, count);
    store_first(out + i, v, count);
  });
}

}  // namespace mtplx
