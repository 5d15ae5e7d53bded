// What is chosen for all kernels of the process, whichever thread calls them.
#pragma once

namespace mtplx {

// How many threads they use.
int num_threads();
void set_num_threads(int num_threads);

// Whether products with quantized weights round their inputs to int8.
bool rounds_inputs();
void set_rounds_inputs(bool rounds);

}  // namespace mtplx
