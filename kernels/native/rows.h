// Rows made ready for products: interleaved in blocks, so that one pointer reaches all rows of a block.
//
// A block of R rows lies as [K][R], with the sums of its groups as [K / group][R]. The last block is filled up with
// copies of its last row, whose results are dropped. Which block a row is in changes none of its bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

#include "parallel.h"
#include "simd.h"

namespace mtplx {

// Sums for this many rows, and for two to four tiles at once, fill half the registers.
constexpr int kMaxBlockRows = kRegisters / kRegistersPerVector >= 32 ? 8 : 4;
constexpr int kBlockRows[] = {1, 2, 4, 6, 8};
constexpr int kMaxGroup = 128;

inline int block_rows(int num_rows) {
  for (int size : kBlockRows)
    if (size >= num_rows || size == kMaxBlockRows) return size;
  return kMaxBlockRows;
}

struct FreeAligned {
  void operator()(float* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
using Floats = std::unique_ptr<float[], FreeAligned>;
inline Floats make_floats(int64_t count) {
  return Floats(static_cast<float*>(::operator new[](count * sizeof(float), std::align_val_t{64})));
}

class PackedRows {
 public:
  PackedRows(int num_rows, int num_inputs, int group)
      : num_rows(num_rows), num_inputs(num_inputs), group(group), num_groups(num_inputs / group) {
    const int64_t capacity = num_rows + kMaxBlockRows;
    values_ = make_floats(capacity * num_inputs);
    sums_ = make_floats(capacity * num_groups);
  }

  const int num_rows, num_inputs, group, num_groups;

  // Calls `visit(first row, rows of the block, values, sums)` for each block.
  template <typename Visit>
  void for_each_block(Visit visit) const {
    for (int row = 0, at = 0; row < num_rows;) {
      const int size = block_rows(num_rows - row);
      visit(row, size, values_.get() + int64_t(at) * num_inputs, sums_.get() + int64_t(at) * num_groups);
      row += size, at += size;
    }
  }

  // Take over groups [begin, end) of all rows; `fill(row, k, values)` gives the group of a row's inputs from k on.
  template <typename Fill>
  void pack(const Team::Range& groups, Fill fill) {
    for_each_block([&](int first, int size, float* values, float* sums) {
      for (int i = 0; i < size; i++)
        for (int64_t g = groups.begin; g < groups.end; g++) {
          float from[kMaxGroup];
          float* const to = values + g * group * size + i;
          fill(std::min(first + i, num_rows - 1), int(g) * group, size == 1 ? to : from);
          sums[g * size + i] = group_sum(size == 1 ? to : from);
          for (int k = 0; k < group && size > 1; k++) to[k * size] = from[k];
        }
    });
  }

 private:
  float group_sum(const float* from) const {
    vfloat lanes = load<vfloat>(from);
    for (int k = kLanes; k < group; k += kLanes) lanes += load<vfloat>(from + k);
    return sum(lanes);
  }

  Floats values_, sums_;
};

}  // namespace mtplx
