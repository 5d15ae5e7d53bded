// Weights that are numbers, as MLX arrays. To be read when the array has data.
#pragma once

#include "array_rows.h"
#include "dense.h"

namespace mtplx {

inline bool is_dense_type(mx::Dtype type) {
  return type == mx::float32 || type == mx::float16 || type == mx::bfloat16;
}

// Of tiles [..., K, 16].
inline DenseWeights dense_weights(const mx::array& values, int num_outputs) {
  const auto type = values.dtype() == mx::float16    ? DenseType::kFloat16
                    : values.dtype() == mx::bfloat16 ? DenseType::kBFloat16
                                                     : DenseType::kFloat32;
  return {values.data<void>(), type, int(values.shape(-2)), num_outputs};
}

}  // namespace mtplx
