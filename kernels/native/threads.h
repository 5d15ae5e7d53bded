// What is chosen for all kernels of the process, whichever thread calls them.
#pragma once

namespace mtplx {

// How many threads they use.
int num_threads();
void set_num_threads(int num_threads);

// To whole numbers of how many bytes products with quantized weights round their inputs; 0: they take floats.
int input_bytes();
void set_input_bytes(int num_bytes);

}  // namespace mtplx
