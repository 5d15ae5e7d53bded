// The instructions that the kernels are compiled for, and whether this processor has them.
#pragma once

namespace mtplx {

const char* isa();  // avx512, avx2, neon or generic
bool runs_here();

}  // namespace mtplx
