// All kernels for products with quantized weights, and the choice among them.
#include "linear.h"

namespace mtplx {
namespace {

template <int Bits, int Rows>
RunKernel kernel(bool single_tile) {
  if constexpr (Rows > kMaxBlockRows)
    return nullptr;
  else
    return single_tile ? &Kernel<Bits, Rows, 1>::run : &Kernel<Bits, Rows, tiles_at_once(Rows)>::run;
}

template <int Bits>
RunKernel kernel_of_bits(int rows, bool single_tile) {
  switch (rows) {
    case 1: return kernel<Bits, 1>(single_tile);
    case 2: return kernel<Bits, 2>(single_tile);
    case 4: return kernel<Bits, 4>(single_tile);
    case 6: return kernel<Bits, 6>(single_tile);
    default: return kernel<Bits, 8>(single_tile);
  }
}

}  // namespace

RunKernel find_kernel(int bits, int rows, bool single_tile) {
  switch (bits) {
    case 2: return kernel_of_bits<2>(rows, single_tile);
    case 3: return kernel_of_bits<3>(rows, single_tile);
    case 4: return kernel_of_bits<4>(rows, single_tile);
    case 5: return kernel_of_bits<5>(rows, single_tile);
    case 6: return kernel_of_bits<6>(rows, single_tile);
    default: return kernel_of_bits<8>(rows, single_tile);
  }
}

}  // namespace mtplx
