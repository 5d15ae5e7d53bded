// All kernels for products with weights that are numbers, and the choice among them.
#include "dense.h"

namespace mtplx {

RunKernel<DenseWeights> find_kernel(const DenseWeights& weights, RowForm, int rows, bool single_tile) {
  switch (weights.type) {
    case DenseType::kFloat16: return kernel_of<DenseSource<float16>>(rows, single_tile);
    case DenseType::kBFloat16: return kernel_of<DenseSource<bfloat16>>(rows, single_tile);
    default: return kernel_of<DenseSource<float>>(rows, single_tile);
  }
}

}  // namespace mtplx
