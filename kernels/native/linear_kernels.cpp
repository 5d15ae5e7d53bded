// All kernels for products with quantized weights, and the choice among them.
#include "linear.h"

namespace mtplx {

RunKernel<QuantizedWeights> find_kernel(const QuantizedWeights& weights, int rows, bool single_tile) {
  switch (weights.bits) {
    case 2: return kernel_of<QuantizedSource<2>>(rows, single_tile);
    case 3: return kernel_of<QuantizedSource<3>>(rows, single_tile);
    case 4: return kernel_of<QuantizedSource<4>>(rows, single_tile);
    case 5: return kernel_of<QuantizedSource<5>>(rows, single_tile);
    case 6: return kernel_of<QuantizedSource<6>>(rows, single_tile);
    default: return kernel_of<QuantizedSource<8>>(rows, single_tile);
  }
}

}  // namespace mtplx
