// The last two axes of MLX arrays as matrices, whatever the strides. To be read when the array has data.
#pragma once

#include "array_rows.h"
#include "matmul.h"

namespace mtplx {

// How many matrices an array holds: the axes before the last two number them.
inline int64_t num_matrices(const mx::array& a) {
  int64_t count = 1;
  for (size_t axis = 0; axis + 2 < a.ndim(); axis++) count *= a.shape(axis);
  return count;
}

inline Matrix matrix(const mx::array& a, int64_t number) {
  const float* data = a.data<float>();
  for (int axis = int(a.ndim()) - 3; axis >= 0; axis--) {
    data += number % a.shape(axis) * a.strides(axis);
    number /= a.shape(axis);
  }
  return {data, a.strides(-2), a.strides(-1)};
}

}  // namespace mtplx
