// Activations of a row, and their products with a second one; and the gradients. Knows arithmetic; knows no MLX.
#pragma once

#include "exponential.h"
#include "tail.h"

namespace mtplx {

struct Silu {  // x σ(x)
  vregister operator()(const vregister& x) const { return x / (1.0f + exponential(-x)); }
  vregister slope(const vregister& x) const {
    const vregister s = 1.0f / (1.0f + exponential(-x));
    return s + x * s * (1.0f - s);
  }
};

struct GeluTanh {  // x (1 + tanh z) / 2 with z = √(2/π) (x + 0.044715 x³): that is x σ(2z)
  vregister operator()(const vregister& x) const {
    const vregister z2 = x * (1.5957691216f + 0.0713548162726f * (x * x));
    return x / (1.0f + exponential(-z2));
  }
  vregister slope(const vregister& x) const {
    const vregister x2 = x * x, s = 1.0f / (1.0f + exponential(-x * (1.5957691216f + 0.0713548162726f * x2)));
    return s + x * s * (1.0f - s) * (1.5957691216f + 0.2140644488178f * x2);
  }
};

struct Gelu {  // x Φ(x), where 2 Φ(-|x|) = erfc(|x| / √2): Abramowitz and Stegun, 7.1.26, within 1.5e-7
  vregister operator()(const vregister& x) const { return x * cumulative(x); }
  vregister slope(const vregister& x) const { return cumulative(x) + x * 0.39894228040f * exponential(-0.5f * x * x); }

 private:
  static vregister cumulative(const vregister& x) {
    const vregister z = (x < 0 ? -x : x) * 0.70710678118654752f;
    const vregister t = 1.0f / (1.0f + 0.3275911f * z);
    vregister p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const vregister below = 0.5f * (p * t) * exponential(-z * z);
    return x < 0 ? below : 1.0f - below;
  }
};

// out [n] = activation(x) · up, or activation(x) alone where up is null. May write where it reads.
template <typename Activation>
inline void activate_row(const float* x, const float* up, int n, float* out) {
  const Activation activation;
  for_each_register(n, [&](int i, int count) __attribute__((always_inline)) {
    vregister v = activation(load_first(x + i, count));
    if (up) v *= load_first(up + i, count);
    store_first(out + i, v, count);
  });
}

// What activation(x) · up takes to the gradients by x and by up, where there is one, from that by the product.
template <typename Activation>
inline void activation_gradient_row(const float* x, const float* up, const float* gradient, int n, float* by_x,
                                    float* by_up) {
  const Activation activation;
  for_each_register(n, [&](int i, int count) __attribute__((always_inline)) {
    const vregister from = load_first(x + i, count), by_product = load_first(gradient + i, count);
    const vregister slope = activation.slope(from) * by_product;
    store_first(by_x + i, up ? slope * load_first(up + i, count) : slope, count);
    if (up) store_first(by_up + i, activation(from) * by_product, count);
  });
}

}  // namespace mtplx
