// The instructions that the kernels are compiled for, and whether this processor has them.
#pragma once

namespace mtplx {

const char* isa();  // avx512, avx2, neon or generic
bool runs_here();

// As whole numbers of how many bytes products with quantized weights best take float32: of 24 bits where a processor has
// products of bytes, and registers enough for the sums; 0: as floats.
int float_bytes();

}  // namespace mtplx
