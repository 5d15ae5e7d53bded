// A projection's weights as MLX arrays.
#pragma once

#include <optional>

#include "linear.h"
#include "mlx/mlx.h"

namespace mtplx {

namespace mx = mlx::core;

// They are evaluated once: a primitive reads them without asking for them.
struct ProjectionArrays {
  mx::array words, scales, biases;
  int bits, group, num_outputs;
  std::optional<mx::array> bias;

  void eval() {
    mx::eval(words, scales, biases);
    if (bias) bias->eval();
  }

  Projection get() const {
    const int num_inputs = int(scales.shape(1)) * group;
    return {{words.data<uint32_t>(), scales.data<float>(), biases.data<float>(), bits, group, num_inputs, num_outputs},
            bias ? bias->data<float>() : nullptr};
  }
};

}  // namespace mtplx
