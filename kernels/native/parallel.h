// A team of threads and a share of the work for each. What a result is never depends on how many there are.
//
// Not OpenMP: its threads cannot hand work to one another while one is off the processor, and a server's other threads
// see to it that one often is.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "threads.h"

namespace mtplx {

// What the members of a team share, each in a cache line of its own: one may be watched while another is written. Members
// only ever wait for one another at a barrier and at the end.
class TeamState {
 public:
  static constexpr int kShares = 8;  // between two barriers

  explicit TeamState(int size = 1) : size(size), taken_(size > 1 ? new Counter[2 * size * kShares] : nullptr) {}

  const int size;
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<int> generation{0};

  // How many chunks are taken of a member's part of a share. Those of one phase rest while the next one counts.
  std::atomic<int64_t>& taken(int phase, int member, int share) {
    return taken_[(phase % 2 * size + member) * kShares + share].chunks;
  }

  void reset(int phase, int member, int shares) {
    for (int share = 0; share < shares; share++) taken(phase, member, share).store(0, std::memory_order_relaxed);
  }

 private:
  struct alignas(64) Counter {
    std::atomic<int64_t> chunks{0};
  };

  std::unique_ptr<Counter[]> taken_;
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

  // The same in whole steps: parts begin at multiples of `step`, and differ by one step at most.
  Range part(int64_t count, int64_t step) const { return part_of(index, count, step); }

  // Each member goes through its fixed part of `count` units, `chunk` at a time, and calls `work(range)`; one that is done
  // takes from the parts of others. Parts are those of whole steps. All members must call this in the same order, at most
  // kShares times between barriers.
  template <typename Work>
  void share(int64_t count, int64_t step, int64_t chunk, Work work) const {
    if (size == 1) {
      if (count > 0) work(Range{0, count});
      return;
    }
    const int share = next_share_++;
    for (int turn = 0; turn < size; turn++) {
      const int owner = (index + turn) % size;
      const auto [begin, end] = part_of(owner, count, step);
      std::atomic<int64_t>& taken = state_->taken(phase_, owner, share);
      if (turn > 0 && begin + taken.load(std::memory_order_relaxed) * chunk >= end) continue;
      for (int64_t at; (at = begin + taken.fetch_add(1, std::memory_order_relaxed) * chunk) < end;)
        work(Range{at, std::min(at + chunk, end)});
    }
  }

  // The same, unit by unit.
  template <typename Work>
  void share(int64_t count, Work work) const {
    share(count, 1, 1, work);
  }

  // Wait for the others. Every member of the team must come.
  void barrier() const;

 private:
  Range part_of(int owner, int64_t count, int64_t step) const {
    const int64_t steps = (count + step - 1) / step;
    return {steps * owner / size * step, std::min(steps * (owner + 1) / size * step, count)};
  }

  TeamState* state_;
  mutable int phase_ = 0, next_share_ = 0;
};

// Calls `job(context, team)` once on each of `size` threads, or on the caller alone if others keep them busy.
void run_team(void (*job)(const void* context, const Team& team), const void* context, int size);

// Calls `work(team)` once on each of `size` threads, or of fewer.
template <typename Work>
void run_on_team(int size, const Work& work) {
  if (size > 1) {
    run_team([](const void* context, const Team& team) { (*static_cast<const Work*>(context))(team); }, &work, size);
  } else {
    TeamState alone;
    work(Team(0, &alone));
  }
}

// Calls `work(team)` once on each of num_threads() threads. Work too small to share runs on the caller alone.
template <typename Work>
void run_in_parallel(bool worth_sharing, const Work& work) {
  run_on_team(worth_sharing ? num_threads() : 1, work);
}

}  // namespace mtplx
