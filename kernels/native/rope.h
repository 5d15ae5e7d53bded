// Rotary position embedding (Su et al., 2104.09864) of a row's heads. Knows arithmetic; knows no MLX.
//
// An angle is the float product of position and inverse frequency, as MLX has it: at position 100,000 its rounding is
// far above that of sine and cosine, which are as good as exact here.
#pragma once

#include "doubles.h"
#include "tail.h"

namespace mtplx {

// For |angle| < 2^30 or so, within 2e-9.
inline void sine_cosine(const vdouble& angle, vdouble& sine, vdouble& cosine) {
  const auto quarter = round_to_longs<vlong>(angle * 0.63661977236758134);
  const vdouble r = (angle - quarter.value * 1.5707963267948966) - quarter.value * 6.123233995736766e-17;
  const vdouble r2 = r * r;
  vdouble s = r2 * (1.0 / 362880) - 1.0 / 5040;
  s = s * r2 + 1.0 / 120;
  s = s * r2 - 1.0 / 6;
  s = s * r2 * r + r;
  vdouble c = r2 * (-1.0 / 3628800) + 1.0 / 40320;
  c = c * r2 - 1.0 / 720;
  c = c * r2 + 1.0 / 24;
  c = c * r2 - 0.5;
  c = c * r2 + 1.0;
  const auto odd = (quarter.bits & 1) != 0;
  const vdouble a = odd ? c : s, b = odd ? s : c;
  sine = (quarter.bits & 2) != 0 ? -a : a;
  cosine = ((quarter.bits + 1) & 2) != 0 ? -b : b;
}

// cosines and sines [half] of position · inverse_frequencies [half]. The same for all heads and layers.
inline void rope_table(float position, const float* inverse_frequencies, int half, float* cosines, float* sines) {
  for (int i = 0; i < half; i += kDoubleLanes) {
    const int count = half - i < kDoubleLanes ? half - i : kDoubleLanes;
    vhalf angles = {};
    std::memcpy(&angles, inverse_frequencies + i, count * sizeof(float));
    angles *= position;
    vdouble sine, cosine;
    sine_cosine(__builtin_convertvector(angles, vdouble), sine, cosine);
    const vhalf c = to_floats(cosine), s = to_floats(sine);
    std::memcpy(cosines + i, &c, count * sizeof(float));
    std::memcpy(sines + i, &s, count * sizeof(float));
  }
}

// Rotates value i together with value half + i.
inline void rotate_halves(const float* x, const float* cosines, const float* sines, int half, float* out) {
  for_each_register(half, [&](int i, int count) __attribute__((always_inline)) {
    const vregister a = load_first(x + i, count), b = load_first(x + half + i, count);
    const vregister c = load_first(cosines + i, count), s = load_first(sines + i, count);
    store_first(out + i, a * c - b * s, count);
    store_first(out + half + i, a * s + b * c, count);
  });
}

// Rotates value 2i together with value 2i + 1: MLX calls it traditional.
inline void rotate_pairs(const float* x, const float* cosines, const float* sines, int half, float* out) {
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const vfloat first = load<vfloat>(x + 2 * i), second = load<vfloat>(x + 2 * i + kLanes);
    const vfloat c = load<vfloat>(cosines + i), s = load<vfloat>(sines + i);
    const vfloat a =
        __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const vfloat b =
        __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    const vfloat even = a * c - b * s, odd = a * s + b * c;
    store(out + 2 * i, __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
    store(out + 2 * i + kLanes,
          __builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
  }
  for (; i < half; i++) {
    const float a = x[2 * i], b = x[2 * i + 1];
    out[2 * i] = a * cosines[i] - b * sines[i];
    out[2 * i + 1] = a * sines[i] + b * cosines[i];
  }
}

struct RopeShape {
  int head_size;
  int half;  // of the values of a head, the first 2 · half are rotated
  bool in_pairs;

  bool operator==(const RopeShape&) const = default;
};

// One head, x [head_size] to out [head_size], which may be the same.
inline void rope_head(const float* x, const float* cosines, const float* sines, const RopeShape& shape, float* out) {
  if (shape.in_pairs)
    rotate_pairs(x, cosines, sines, shape.half, out);
  else
    rotate_halves(x, cosines, sines, shape.half, out);
  const int rotated = 2 * shape.half;
  if (out != x) std::memcpy(out + rotated, x + rotated, (shape.head_size - rotated) * sizeof(float));
}

// The heads of a row, which lie a stride apart: x [num_heads][head_size].
inline void rope_row(const float* x, int64_t stride, const float* cosines, const float* sines, const RopeShape& shape,
                     int num_heads, float* out, int64_t out_stride) {
  for (int head = 0; head < num_heads; head++)
    rope_head(x + head * stride, cosines, sines, shape, out + head * out_stride);
}

}  // namespace mtplx
