// Softmax of rows, and cross-entropy with it; and their gradients. Knows arithmetic; knows no MLX.
#pragma once

#include <cmath>

#include "exponential.h"
#include "tail.h"

namespace mtplx {

// The greatest of x [n], n > 0.
inline float greatest_of(const float* x, int n) {
  vregister most = fill_register(x[0]);
  int i = 0;
  for (; i + kRegisterLanes <= n; i += kRegisterLanes) {
    const vregister v = load<vregister>(x + i);
    most = v > most ? v : most;
  }
  float result = greatest(most);
  for (; i < n; i++) result = std::max(result, x[i]);
  return result;
}

// Σ e^(x − greatest) over [0, n).
inline float sum_of_exponentials(const float* x, int n, float greatest) {
  return sum_of_registers(n, [&](int i, int count) __attribute__((always_inline)) {
    const vregister e = exponential(load_first(x + i, count) - greatest);
    vregister kept = {};
    std::memcpy(&kept, &e, count * sizeof(float));
    return kept;
  });
}

inline void softmax_row(const float* x, int n, float* out) {
  const float most = greatest_of(x, n), factor = 1.0f / sum_of_exponentials(x, n, most);
  for_each_register(n, [&](int i, int count) __attribute__((always_inline)) {
    store_first(out + i, exponential(load_first(x + i, count) - most) * factor, count);
  });
}

// −Σ p log softmax(x).
inline float cross_entropy_row(const float* x, const float* p, int n) {
  const float most = greatest_of(x, n), log_sum = std::log(sum_of_exponentials(x, n, most));
  return sum_of_registers(n, [&](int i, int count) __attribute__((always_inline)) {
    return load_first(p + i, count) * (log_sum - (load_first(x + i, count) - most));
  });
}

// Its gradient by x, times a number: (softmax(x) Σp − p) · factor. p need not sum up to 1.
inline void cross_entropy_gradient_row(const float* x, const float* p, int n, float factor, float* out) {
  const float mass = sum_of_registers(
      n, [&](int i, int count) __attribute__((always_inline)) { return load_first(p + i, count); });
  const float most = greatest_of(x, n), share = mass / sum_of_exponentials(x, n, most);
  for_each_register(n, [&](int i, int count) __attribute__((always_inline)) {
    const vregister softmax = exponential(load_first(x + i, count) - most) * share;
    store_first(out + i, (softmax - load_first(p + i, count)) * factor, count);
  });
}

}  // namespace mtplx
