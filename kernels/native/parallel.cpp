// The threads behind the teams: made once, awake for a moment after each job, asleep when there is none.
#include "parallel.h"

#include <pthread.h>
#include <sched.h>

#include <mutex>
#include <thread>

namespace mtplx {
namespace {

// A thread that waits lets others have its processor every few microseconds: the one that it waits for may be among
// them. It sleeps when there is no job for about as long as MLX takes from one operation to the next.
constexpr int kSpinsBeforeYield = 64;
constexpr int kSpinsBeforeSleep = 8 * kSpinsBeforeYield;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether `ready` came true within that many spins.
template <typename Ready>
bool wait_for(int most_spins, Ready ready) {
  for (int spins = 1; spins <= most_spins; spins++) {
    if (ready()) return true;
    if (spins % kSpinsBeforeYield == 0)
      sched_yield();
    else
      relax();
  }
  return ready();
}

template <typename Ready>
void wait_until(Ready ready) {
  while (!wait_for(kSpinsBeforeSleep, ready)) {
  }
}

// Leaves `processor` for another, if there is one: the system may keep two threads on one while another has nothing to do.
void leave(int processor) {
  cpu_set_t all, others;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  others = all;
  CPU_CLR(processor, &others);
  if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
    sched_setaffinity(0, sizeof all, &all);
}

class Pool {
 public:
  void run(void (*job)(const void*, const Team&), const void* context, int size) {
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (size == 1 || !lock.owns_lock()) {
      TeamState alone;
      job(context, Team(0, &alone));
      return;
    }
    if (!state_ || state_->size != size) state_ = std::make_unique<TeamState>(size);
    while (num_workers_ < size - 1) std::thread(&Pool::work, this, ++num_workers_, epoch_.load()).detach();
    job_ = job, context_ = context, processor_ = sched_getcpu();
    for (int phase = 0; phase < 2; phase++)
      for (int member = 0; member < size; member++) state_->reset(phase, member, TeamState::kShares);
    num_done_.store(0, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    job(context, Team(0, state_.get()));
    wait_until([&] { return num_done_.load(std::memory_order_acquire) == num_workers_; });
  }

 private:
  void work(int index, int seen) {
    for (;; seen++) {
      if (!wait_for(kSpinsBeforeSleep, [&] { return epoch_.load(std::memory_order_acquire) != seen; }))
        epoch_.wait(seen, std::memory_order_acquire);
      if (sched_getcpu() == processor_) leave(processor_);
      if (index < state_->size) job_(context_, Team(index, state_.get()));
      num_done_.fetch_add(1, std::memory_order_release);
    }
  }

  std::mutex mutex_;
  int num_workers_ = 0;
  void (*job_)(const void*, const Team&) = nullptr;
  const void* context_ = nullptr;
  int processor_ = -1;  // that the job was given from
  std::unique_ptr<TeamState> state_;
  alignas(64) std::atomic<int> epoch_{0};
  alignas(64) std::atomic<int> num_done_{0};
};

// Never destroyed: its threads wait in it until the process ends. A forked child has none of them and starts anew.
Pool* pool = new Pool;
const int at_fork = pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });

}  // namespace

void Team::barrier() const {
  if (size == 1) return;
  const int generation = state_->generation.load(std::memory_order_acquire);
  if (state_->arrived.fetch_add(1, std::memory_order_acq_rel) == size - 1) {
    state_->arrived.store(0, std::memory_order_relaxed);
    state_->generation.fetch_add(1, std::memory_order_release);
  } else {
    wait_until([&] { return state_->generation.load(std::memory_order_acquire) != generation; });
  }
  state_->reset(phase_, index, next_share_);  // all have left this phase, and none enters the one after next before we have come
  phase_++, next_share_ = 0;
}

void run_team(void (*job)(const void* context, const Team& team), const void* context, int size) {
  pool->run(job, context, size);
}

}  // namespace mtplx
