// A team of threads and a share of the work for each. What a result is never depends on how many there are.
//
// Not OpenMP: its threads cannot hand work to one another while one is off the processor, and a server's other threads
// see to it that one often is.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "threads.h"

namespace mtplx {

// What the members of a team share, each in a cache line of its own: one may be watched while another is written. Members
// only ever wait for one another at a barrier and at the end.
struct TeamState {
  static constexpr int kCounters = 8;

  struct alignas(64) Counter {
    std::atomic<int64_t> units{0};
  };

  int size = 1;
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<int> generation{0};
  Counter taken[kCounters];
};

class Team {
 public:
  Team(int index, TeamState* state) : index(index), size(state->size), state_(state) {}

  const int index;
  const int size;

  struct Range {
    int64_t begin, end;
  };

  // This member's fixed part of `count` units of work: parts differ by one unit at most.
  Range part(int64_t count) const { return {count * index / size, count * (index + 1) / size}; }

  // Members take `chunk` units at a time, as they come to it, and call `work(range)`. All members must call this in
  // the same order, at most kCounters times between barriers.
  template <typename Work>
  void share(int64_t count, int64_t chunk, Work work) const {
    if (size == 1) {
      if (count > 0) work(Range{0, count});
      return;
    }
    std::atomic<int64_t>& taken = state_->taken[next_counter_++].units;
    for (int64_t begin; (begin = taken.fetch_add(chunk, std::memory_order_relaxed)) < count;)
      work(Range{begin, std::min(begin + chunk, count)});
  }

  // Wait for the others. Every member of the team must come.
  void barrier() const;

 private:
  TeamState* state_;
  mutable int next_counter_ = 0;
};

// Calls `job(context, team)` once on each of num_threads() threads, or on the caller alone if others keep them busy.
void run_team(void (*job)(const void* context, const Team& team), const void* context);

// Calls `work(team)` once on each thread. Work too small to share runs on the caller alone.
template <typename Work>
void run_in_parallel(bool worth_sharing, const Work& work) {
  if (worth_sharing) {
    run_team([](const void* context, const Team& team) { (*static_cast<const Work*>(context))(team); }, &work);
  } else {
    TeamState alone;
    work(Team(0, &alone));
  }
}

}  // namespace mtplx
