// A team of threads and a part of the work for each. What a result is never depends on how many there are.
#pragma once

#include <omp.h>

#include <cstddef>
#include <cstdint>

namespace mtplx {

struct Team {
  int index;
  int size;

  // Wait for the others. Every member of the team must come.
  void barrier() const {
#pragma omp barrier
  }

  struct Range {
    int64_t begin, end;
  };

  // This member's part of `count` units of work: parts differ by one unit at most.
  Range part(int64_t count) const { return {count * index / size, count * (index + 1) / size}; }
};

// Calls `work(team)` once on each thread. Work too small to share runs on the caller alone.
template <typename Work>
void run_in_parallel(bool worth_sharing, Work work) {
  if (!worth_sharing) {
    work(Team{0, 1});
    return;
  }
#pragma omp parallel
  work(Team{omp_get_thread_num(), omp_get_num_threads()});
}

}  // namespace mtplx
