#include "threads.h"

#include <omp.h>

#include <algorithm>
#include <atomic>

namespace mtplx {

static std::atomic<int> chosen{omp_get_max_threads()};

int num_threads() { return chosen.load(std::memory_order_relaxed); }

void set_num_threads(int num_threads) { chosen.store(std::max(num_threads, 1), std::memory_order_relaxed); }

}  // namespace mtplx
