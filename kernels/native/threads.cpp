#include "threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>

namespace mtplx {

static int processors() {
  cpu_set_t ours;
  CPU_ZERO(&ours);
  return sched_getaffinity(0, sizeof ours, &ours) == 0 ? std::max(CPU_COUNT(&ours), 1) : 1;
}

static std::atomic<int> chosen{processors()};

int num_threads() { return chosen.load(std::memory_order_relaxed); }

void set_num_threads(int num_threads) { chosen.store(std::max(num_threads, 1), std::memory_order_relaxed); }

static std::atomic<int> bytes_now{0};

int input_bytes() { return bytes_now.load(std::memory_order_relaxed); }

void set_input_bytes(int num_bytes) { bytes_now.store(std::clamp(num_bytes, 0, 3), std::memory_order_relaxed); }

}  // namespace mtplx
