// How many threads the kernels use, whichever thread calls them.
#pragma once

namespace mtplx {

int num_threads();
void set_num_threads(int num_threads);

}  // namespace mtplx
