// The instructions that the kernels are compiled for, and whether this processor has them.
#pragma once

namespace mtplx {

const char* isa();  // avx512, avx2, neon or generic
bool runs_here();

// Whether products with quantized weights are quicker with inputs of 16 bits than with floats.
bool is_quick_at_int16();

// As whole numbers of how many bytes products with quantized weights best take float32: of 24 bits where a processor adds
// up products of bytes in one step, and has registers enough for the sums; 0: as floats.
int float_bytes();

}  // namespace mtplx
