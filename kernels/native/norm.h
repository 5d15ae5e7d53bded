// RMSNorm and LayerNorm of a row, with the residual added first where asked. Knows arithmetic; knows no MLX.
//
// Every function may write where it reads. Sums go in a fixed order of lanes, so a row's bits depend on it alone.
#pragma once

#include <cmath>

#include "tail.h"

namespace mtplx {

inline void add_row(const float* x, const float* residual, int n, float* sum) {
  for_each_register(n, [&](int i, int count) __attribute__((always_inline)) {
    store_first(sum + i, load_first(x + i, count) + load_first(residual + i, count), count);
  });
}

// What RMSNorm multiplies a row by, before the weight: 1 / √(mean(x²) + eps).
inline float rms_scale(const float* x, int n, float eps) {
  const float squares = sum_of_registers(n, [&](int i, int count) __attribute__((always_inline)) {
    const vregister v = load_first(x + i, count);
    return v * v;
  });
  return 1.0f / std::sqrt(squares / n + eps);
}

// weight [n] may be null.
inline void rms_norm_row(const float* x, const float* weight, int n, float eps, float* out) {
  const float scale = rms_scale(x, n, eps);
  for_each_register(n, [&](int i, int count) __attribute__((always_inline)) {
    vregister v = load_first(x + i, count) * scale;
    if (weight) v *= load_first(weight + i, count);
    store_first(out + i, v, count);
  });
}

// weight [n] and bias [n] may be null.
inline void layer_norm_row(const float* x, const float* weight, const float* bias, int n, float eps, float* out) {
  const float mean = sum_of_registers(n, [&](int i, int count) __attribute__((always_inline)) {
    return load_first(x + i, count);
  }) / n;
  const float squares = sum_of_registers(n, [&](int i, int count) __attribute__((always_inline)) {
    vregister v = load_first(x + i, count) - mean;
    if (count < kRegisterLanes) v = load_first(reinterpret_cast<const float*>(&v), count);  // lanes beyond the row are 0 - mean
    return v * v;
  });
  const float scale = 1.0f / std::sqrt(squares / n + eps);
  for_each_register(n, [&](int i, int count) __attribute__((always_inline)) {
    vregister v = (load_first(x + i, count) - mean) * scale;
    if (weight) v *= load_first(weight + i, count);
    if (bias) v += load_first(bias + i, count);
    store_first(out + i, v, count);
  });
}

}  // namespace mtplx
