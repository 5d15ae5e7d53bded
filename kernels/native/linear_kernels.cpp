// All kernels for products with quantized weights, and the choice among them.
#include "linear.h"

namespace mtplx {

template <int Bits>
static RunKernel<QuantizedWeights> pair_kernel(RowForm form, int rows, bool single_tile) {
  if constexpr (16 % Bits == 0)
    if (form.stride() > 1) return kernel_of<PairSource<Bits, Bits>>(rows, single_tile);
  return kernel_of<PairSource<Bits, 0>>(rows, single_tile);
}

template <int Bits, int Bytes>
static RunKernel<QuantizedWeights> whole_kernel(RowForm form, int rows, bool single_tile) {
  if constexpr (Bits == 2 || Bits == 4)
    if (form.stride() > 1) return kernel_of<WholeSource<Bits, Bits, Bytes>>(rows, single_tile);
  return kernel_of<WholeSource<Bits, 0, Bytes>>(rows, single_tile);
}

template <int Bits>
static RunKernel<QuantizedWeights> kernel(RowForm form, int rows, bool single_tile) {
  switch (form.num_bytes) {
    case 0: return kernel_of<QuantizedSource<Bits>>(rows, single_tile);
    case 1: return whole_kernel<Bits, 1>(form, rows, single_tile);
    case 2:
      if constexpr (kPairs)
        return pair_kernel<Bits>(form, rows, single_tile);
      else
        return whole_kernel<Bits, 2>(form, rows, single_tile);
    default: return whole_kernel<Bits, 3>(form, rows, single_tile);
  }
}

RunKernel<QuantizedWeights> find_kernel(const QuantizedWeights& weights, RowForm form, int rows, bool single_tile) {
  switch (weights.bits) {
    case 2: return kernel<2>(form, rows, single_tile);
    case 3: return kernel<3>(form, rows, single_tile);
    case 4: return kernel<4>(form, rows, single_tile);
    case 5: return kernel<5>(form, rows, single_tile);
    case 6: return kernel<6>(form, rows, single_tile);
    default: return kernel<8>(form, rows, single_tile);
  }
}

}  // namespace mtplx
