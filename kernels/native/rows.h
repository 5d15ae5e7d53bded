// Rows made ready for products: interleaved in blocks, so that one pointer reaches all rows of a block.
//
// A block of R rows lies as [K / 32][R][32], with the sums of its groups as [K / group][R]. The last block is filled up
// with copies of its last row, whose results are dropped. Which block a row is in changes none of its bits.
//
// Rows of whole numbers have one scale a group, x = scale · q, and q as one to three signed bytes, the highest first:
// [K / 32][R][bytes][8], lanes of four inputs each; or, where kPairs says so, those of 16 bits in one piece: [K / 32][R][16],
// lanes of two inputs each. Their sums are those of the rounded values.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <new>

#include "parallel.h"
#include "simd.h"
#include "tail.h"

namespace mtplx {

constexpr int kMaxBlockRows = kRegisters == 16 ? 6 : 8;  // 16 registers: 12 sums, two weights, an input, a product
constexpr int kBlockRows[] = {1, 2, 3, 4, 5, 6, 8};
constexpr int kMaxGroup = 128;
constexpr int kBlock = 32;  // inputs whose weights fill whole lanes, whatever their bits

inline int block_rows(int num_rows) {
  for (int size : kBlockRows)
    if (size >= num_rows || size == kMaxBlockRows) return size;
  return kMaxBlockRows;
}

// Whether a processor multiplies numbers of 16 bits, two to a lane, better than bytes.
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
constexpr bool kPairs = true;
#else
constexpr bool kPairs = false;
#endif

struct FreeAligned {
  void operator()(float* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
using Floats = std::unique_ptr<float[], FreeAligned>;
inline Floats make_floats(int64_t count) {
  return Floats(static_cast<float*>(::operator new[](count * sizeof(float), std::align_val_t{64})));
}

// How rows are held for a product: as floats, or as whole numbers of so many bytes. Which four inputs share a lane then
// goes by the bits of the weights that they will meet: those that come out of the weights' words together.
struct RowForm {
  int num_bytes = 0;  // none: floats
  int bits = 0;

  bool operator==(const RowForm&) const = default;

  bool has_pairs() const { return kPairs && num_bytes == 2; }

  int num_sums() const { return has_pairs() ? 1 : std::max(num_bytes, 1); }

  // How many floats the values of so many inputs take, whole blocks of them.
  int64_t num_floats(int64_t num_inputs) const { return num_bytes == 0 ? num_inputs : num_inputs / 4 * num_bytes; }

  // The largest q: its highest byte is 127, and is so too where a float rounds it up. Of two bytes the higher one is 68
  // at most: then 32 of its products with weights of four bits have a sum that 16 bits hold. What one byte holds exactly,
  // two and three hold too.
  float limit() const { return num_bytes == 1 ? 127 : num_bytes == 2 ? 127 * 137 : 127 << 16; }

  // The four inputs of a lane are this far apart, and neighbouring lanes take turns. Likewise the two of a pair.
  int stride() const {
    const int of_four = bits == 4 ? 2 : bits == 2 ? 4 : 1;
    return !has_pairs() ? of_four : bits == 8 ? 2 : of_four > 1 ? 2 * of_four : 1;
  }

  // 16 inputs in the order of their lanes' bytes.
  vint arrange(const vint& inputs) const {
    switch (stride()) {
      case 2:
        return __builtin_shufflevector(inputs, inputs, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
      case 4:
        return __builtin_shufflevector(inputs, inputs, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
      default:
        return inputs;
    }
  }

  // 32 inputs as the lanes of their pairs.
  void put_pairs(const int32_t* inputs, uint32_t* lanes) const {
    switch (stride()) {
      case 2: return put_pairs<2>(inputs, lanes);
      case 4: return put_pairs<4>(inputs, lanes);
      case 8: return put_pairs<8>(inputs, lanes);
      default: return put_pairs<1>(inputs, lanes);
    }
  }

 private:
  template <int Stride>
  static void put_pairs(const int32_t* inputs, uint32_t* lanes) {
    for (int first = 0; first < kBlock; first += 2 * Stride, inputs += 2 * Stride, lanes += Stride)
      for (int i = 0; i < Stride; i++) lanes[i] = (inputs[i] & 0xffff) | uint32_t(inputs[i + Stride]) << 16;
  }
};

// The rows of a block, as above.
struct RowBlock {
  float* values;  // or lanes of bytes
  float* sums;
  float* scales;  // of whole numbers [K / group][R]
};

class PackedRows {
 public:
  PackedRows(int num_rows, int num_inputs, int group, RowForm form)
      : num_rows(num_rows), num_inputs(num_inputs), group(group), num_groups(num_inputs / group), form(form) {
    const int64_t capacity = num_rows + kMaxBlockRows;
    values_ = make_floats(form.num_floats(capacity * num_inputs));
    sums_ = make_floats(capacity * num_groups);
    if (form.num_bytes) scales_ = make_floats(capacity * num_groups);
  }

  const int num_rows, num_inputs, group, num_groups;
  const RowForm form;

  // Calls `visit(first row, rows of the block, block)` for each block.
  template <typename Visit>
  void for_each_block(Visit visit) const {
    const int64_t values_each = form.num_floats(num_inputs);
    for (int row = 0, at = 0; row < num_rows;) {
      const int size = block_rows(num_rows - row);
      visit(row, size,
            RowBlock{values_.get() + at * values_each, sums_.get() + int64_t(at) * num_groups,
                     form.num_bytes ? scales_.get() + int64_t(at) * num_groups : nullptr});
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
          switch (form.num_bytes) {
            case 0: put(from, g, i, size, block); break;
            case 1: put_whole<1>(from, g, i, size, block); break;
            case 2: put_whole<2>(from, g, i, size, block); break;
            default: put_whole<3>(from, g, i, size, block);
          }
        }
    });
  }

 private:
  void put(const float* from, int64_t g, int i, int size, const RowBlock& block) {
    LaneSums lanes;
    for (int k = 0; k < group; k += kLanes)
      for (int part = 0; part < kRegistersPerVector; part++) {
        const int at = k + part * kRegisterLanes;
        const vregister x = load<vregister>(from + at);
        lanes.registers[part] = k ? lanes.registers[part] + x : x;
        store(block.values + ((g * group + at) / kBlock * size + i) * kBlock + at % kBlock, x);
      }
    block.sums[g * size + i] = lanes.sum();
  }

  // A group with an input that is no finite number gets a scale that is none.
  template <int Bytes>
  void put_whole(const float* from, int64_t g, int i, int size, const RowBlock& block) {
    constexpr float kLeast = 1e-30f;  // what is smaller is 0, for its inverse may be beyond all numbers
    iregister most = {};  // of the bits without sign, which grow with the number, and are greatest for what is none
    for (int k = 0; k < group; k += kRegisterLanes) {
      const iregister magnitude = load<iregister>(from + k) & 0x7fffffff;
      most = magnitude > most ? magnitude : most;
    }
    const float limit = std::bit_cast<float>(greatest(most)), scale = limit / form.limit() + (limit - limit);
    const float inverse = limit > kLeast ? form.limit() / limit : 0;
    iregister total = {};
    for (int k = 0; k < group; k += kBlock) {
      char* const to =
          reinterpret_cast<char*>(block.values) + ((g * group + k) / kBlock * size + i) * (kBlock * Bytes);
      alignas(64) int32_t rounded[kBlock];
      for (int at = 0; at < kBlock; at += kRegisterLanes) {
        const iregister q = round(load<vregister>(from + k + at) * inverse);
        store(rounded + at, q);
        total += q;
      }
      if constexpr (kPairs && Bytes == 2) {
        form.put_pairs(rounded, reinterpret_cast<uint32_t*>(to));
        continue;
      }
      for (int half = 0; half < kBlock; half += kLanes) {
        vint rest = form.arrange(load<vint>(rounded + half));
        for (int byte = Bytes - 1; byte >= 0; byte--) {
          store(to + byte * kBlock + half, __builtin_convertvector(rest, vbyte));  // the lowest byte
          rest = (rest + 128) >> 8;
        }
      }
    }
    block.sums[g * size + i] = scale * float(sum(total));
    block.scales[g * size + i] = scale;
  }

  Floats values_, sums_, scales_;
};

}  // namespace mtplx
