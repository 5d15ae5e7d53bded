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

static std::atomic<bool> rounds_now{false};

bool rounds_inputs() { return rounds_now.load(std::memory_order_relaxed); }

void set_rounds_inputs(bool rounds) { rounds_now.store(rounds, std::memory_order_relaxed); }

}  // namespace mtplx
