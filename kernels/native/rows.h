// Rows made ready for products: interleaved in blocks, so that one pointer reaches all rows of a block.
//
// A block of R rows lies as [K][R], with the sums of its groups as [K / group][R]. The last block is filled up with
// copies of its last row, whose results are dropped. Which block a row is in changes none of its bits.
//
// Rows rounded to int8 have one scale a group: x = scale · q with |q| <= 127, as [K / 4][R] lanes of four q each. Their
// sums are those of the rounded values.
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
constexpr int kBlockRows[] = {1, 2, 3, 4, 5, 6, 8};
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

// How rows are held for a product. Of int8 rows, which four inputs share a lane goes by the bits of the weights that
// they will meet: those that come out of the weights' words together.
struct RowForm {
  bool is_int8 = false;
  int bits = 0;

  bool operator==(const RowForm&) const = default;

  // The four inputs of a lane are this far apart, and neighbouring lanes take turns.
  int stride() const { return bits == 4 ? 2 : bits == 2 ? 4 : 1; }

  // 16 inputs in the order of their lanes' bytes.
  vbyte arrange(const vbyte& inputs) const {
    switch (stride()) {
      case 2:
        return __builtin_shufflevector(inputs, inputs, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
      case 4:
        return __builtin_shufflevector(inputs, inputs, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
      default:
        return inputs;
    }
  }
};

// The rows of a block, as above.
struct RowBlock {
  float* values;  // or int8 lanes
  float* sums;
  float* scales;  // of int8 rows [K / group][R]
};

class PackedRows {
 public:
  PackedRows(int num_rows, int num_inputs, int group, RowForm form)
      : num_rows(num_rows), num_inputs(num_inputs), group(group), num_groups(num_inputs / group), form(form) {
    const int64_t capacity = num_rows + kMaxBlockRows;
    values_ = make_floats(form.is_int8 ? capacity * num_inputs / 4 : capacity * num_inputs);
    sums_ = make_floats(capacity * num_groups);
    if (form.is_int8) scales_ = make_floats(capacity * num_groups);
  }

  const int num_rows, num_inputs, group, num_groups;
  const RowForm form;

  // Calls `visit(first row, rows of the block, block)` for each block.
  template <typename Visit>
  void for_each_block(Visit visit) const {
    const int64_t values_each = form.is_int8 ? num_inputs / 4 : num_inputs;
    for (int row = 0, at = 0; row < num_rows;) {
      const int size = block_rows(num_rows - row);
      visit(row, size,
            RowBlock{values_.get() + at * values_each, sums_.get() + int64_t(at) * num_groups,
                     form.is_int8 ? scales_.get() + int64_t(at) * num_groups : nullptr});
      row += size, at += size;
    }
  }

  // Take over groups [begin, end) of all rows; `fill(row, k, values)` gives the group of a row's inputs from k on.
  template <typename Fill>
  void pack(const Team::Range& groups, Fill fill) {
    for_each_block([&](int first, int size, const RowBlock& block) {
      for (int i = 0; i < size; i++)
        for (int64_t g = groups.begin; g < groups.end; g++) {
          alignas(64) float from[kMaxGroup];
          fill(std::min(first + i, num_rows - 1), int(g) * group, from);
          if (form.is_int8)
            put_int8(from, g, i, size, block);
          else
            put(from, g, i, size, block);
        }
    });
  }

 private:
  void put(const float* from, int64_t g, int i, int size, const RowBlock& block) {
    float* const to = block.values + g * group * size + i;
    vfloat lanes = {};
    for (int k = 0; k < group; k += kLanes) lanes = k ? lanes + load<vfloat>(from + k) : load<vfloat>(from);
    block.sums[g * size + i] = sum(lanes);
    if (size == 1)
      std::copy_n(from, group, to);
    else
      for (int k = 0; k < group; k++) to[k * size] = from[k];
  }

  // A group with an input that is no finite number gets a scale that is none.
  void put_int8(const float* from, int64_t g, int i, int size, const RowBlock& block) {
    vfloat most = {}, zeros = {};
    for (int k = 0; k < group; k += kLanes) {
      const vfloat x = load<vfloat>(from + k), magnitude = x < 0 ? -x : x;
      most = magnitude > most ? magnitude : most;
      zeros += x * 0.0f;
    }
    const float limit = greatest(most), scale = limit / 127 + sum(zeros), inverse = limit > 0 ? 127 / limit : 0;
    float* const to = block.values + g * (group / 4) * size + i;
    vint total = {};
    for (int k = 0; k < group; k += kLanes) {
      const vint rounded = round(load<vfloat>(from + k) * inverse);
      total += rounded;
      float lanes[kLanes / 4];
      store(lanes, form.arrange(__builtin_convertvector(rounded, vbyte)));
      for (int lane = 0; lane < kLanes / 4; lane++) to[(k / 4 + lane) * size] = lanes[lane];
    }
    block.sums[g * size + i] = scale * float(sum(total));
    block.scales[g * size + i] = scale;
  }

  Floats values_, sums_, scales_;
};

}  // namespace mtplx
