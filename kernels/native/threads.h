// How many threads the kernels use. OpenMP's own setting holds for the thread that sets it only, and MLX runs a stream
// on a thread of its own; so this one is for all: `#pragma omp parallel num_threads(mtplx::num_threads())`.
#pragma once

namespace mtplx {

int num_threads();
void set_num_threads(int num_threads);

}  // namespace mtplx
