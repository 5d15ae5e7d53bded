// Products with quantized weights, y = x Wᵀ, for any number of rows. Knows memory layout and arithmetic; knows no MLX.
//
// Layout: 16 outputs lie side by side, a tile. Of every 32 weights of an output, its `bits` words stand in one lane:
// words [tiles][K / 32][bits][16], and some bytes more that mean nothing; scales and biases [tiles][K / group][16]. So one
// vector holds weight k of 16 outputs, and no sum crosses lanes.
//
// Arithmetic of one output, the same whatever shares the call: within a group t = Σ q·x, from k = 0 on, in one
// multiply-add a step; then y += scale·t and y += bias·Σx. Group by group.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "parallel.h"
#include "rows.h"
#include "simd.h"

namespace mtplx {

constexpr int kBlock = 32;  // weights whose words fill whole lanes, whatever their bits

struct QuantizedWeights {
  const uint32_t* words;
  const float* scales;
  const float* biases;
  int bits;
  int group;
  int num_inputs;
  int num_outputs;

  int num_tiles() const { return (num_outputs + kLanes - 1) / kLanes; }
  int num_groups() const { return num_inputs / group; }
  int64_t tile_words() const { return int64_t(num_inputs) / kBlock * bits * kLanes; }
};

// The number in the low `Bits` bits of every lane.
template <int Bits>
inline vfloat number_of(vuint lanes) {
#ifdef __AVX512F__
  // One look-up, by the low four bits, is quicker than masking and converting.
  if constexpr (Bits <= 4) {
    constexpr auto at = [](int i) { return float(i & ((1 << Bits) - 1)); };
    constexpr vfloat numbers = {at(0), at(1), at(2),  at(3),  at(4),  at(5),  at(6),  at(7),
                                at(8), at(9), at(10), at(11), at(12), at(13), at(14), at(15)};
    return __builtin_shuffle(numbers, reinterpret_cast<vint>(lanes));
  }
#endif
  return to_float(lanes & ((1u << Bits) - 1));
}

// Weight I of 32 in every lane, out of the lane's `Bits` words. May read three bytes beyond them.
template <int Bits, int I>
inline vfloat unpack(const uint32_t* words) {
  constexpr int word = I * Bits / 32, shift = I * Bits % 32;
  // Loading from some bytes on is a shift for nothing: only the low bits of a lane count.
  const auto* bytes = reinterpret_cast<const char*>(words + word * kLanes) + shift / 8;
  vuint value = load<vuint>(bytes) >> (shift % 8);
  if constexpr (shift % 8 + Bits > 8) {
    value = load<vuint>(words + word * kLanes) >> shift;
    if constexpr (shift + Bits > 32) value |= load<vuint>(words + (word + 1) * kLanes) << (32 - shift);
  }
  return number_of<Bits>(value);
}

// How many tiles a kernel takes at once: as many as fill half the registers with their sums, for these rows, but no
// more than it takes to keep the multipliers busy.
constexpr int tiles_at_once(int rows) {
  const int fit = kRegisters / kRegistersPerVector / 2 / rows;
  return fit >= 3 ? 3 : fit >= 2 ? 2 : 1;
}

// Products of the `Rows` rows of a block with `Tiles` neighbouring tiles, to out [Rows][Tiles * 16].
template <int Bits, int Rows, int Tiles>
class Kernel {
 public:
  // `tiles_ahead` tiles on from these are those that will be wanted next.
  static void run(const QuantizedWeights& weights, const float* x, const float* sums, int first_tile, int tiles_ahead,
                  float* out) {
    const int num_groups = weights.num_groups(), blocks = weights.group / kBlock;
    const uint32_t* words[Tiles];
    for (int tile = 0; tile < Tiles; tile++) words[tile] = weights.words + (first_tile + tile) * weights.tile_words();
    const int64_t words_ahead = tiles_ahead * weights.tile_words();
    const int64_t groups_ahead = int64_t(tiles_ahead) * num_groups * kLanes;
    Sums total = {};
    for (int g = 0; g < num_groups; g++) {
      Sums t = {};
      for (int b = 0; b < blocks; b++) {
        for (int tile = 0; tile < Tiles; tile++)
          for (int i = 0; i < Bits; i++) prefetch(words[tile] + words_ahead + i * kLanes);
        add_block(words, x, t, std::make_integer_sequence<int, kBlock>{});
        x += kBlock * Rows;
        for (int tile = 0; tile < Tiles; tile++) words[tile] += Bits * kLanes;
      }
      for (int tile = 0; tile < Tiles; tile++) {
        const int64_t at = (int64_t(first_tile + tile) * num_groups + g) * kLanes;
        prefetch(weights.scales + at + groups_ahead);
        prefetch(weights.biases + at + groups_ahead);
        const vfloat scale = load<vfloat>(weights.scales + at), bias = load<vfloat>(weights.biases + at);
#pragma GCC unroll 16
        for (int row = 0; row < Rows; row++) {
          total[tile][row] += scale * t[tile][row];
          total[tile][row] += bias * broadcast(sums[g * Rows + row]);
        }
      }
    }
    for (int row = 0; row < Rows; row++)
      for (int tile = 0; tile < Tiles; tile++) store(out + (row * Tiles + tile) * kLanes, total[tile][row]);
  }

 private:
  using Sums = vfloat[Tiles][Rows];

  template <int... I>
  static inline __attribute__((always_inline)) void add_block(const uint32_t* const (&words)[Tiles], const float* x,
                                                              Sums& t, std::integer_sequence<int, I...>) {
    (add<I>(words, x, t), ...);
  }

  template <int I>
  static inline __attribute__((always_inline)) void add(const uint32_t* const (&words)[Tiles], const float* x,
                                                        Sums& t) {
    vfloat q[Tiles];
    for (int tile = 0; tile < Tiles; tile++) q[tile] = unpack<Bits, I>(words[tile]);
#pragma GCC unroll 16
    for (int row = 0; row < Rows; row++) {
      const vfloat value = broadcast(x[I * Rows + row]);
#pragma GCC unroll 4
      for (int tile = 0; tile < Tiles; tile++) t[tile][row] += q[tile] * value;
    }
  }
};

using RunKernel = void (*)(const QuantizedWeights&, const float* x, const float* sums, int first_tile, int tiles_ahead,
                           float* out);

// The kernel for these bits and rows of a block; for as many tiles as it takes at once, or for a single one.
RunKernel find_kernel(int bits, int rows, bool single_tile);

// This member's share of a product. Calls `emit(row, first output, values, count)` for every run of results.
template <typename Emit>
void multiply(const QuantizedWeights& weights, const PackedRows& rows, const Team& team, Emit emit) {
  const int at_once = tiles_at_once(block_rows(rows.num_rows));
  team.share(weights.num_tiles(), at_once, [&](Team::Range tiles) {
    rows.for_each_block([&](int first_row, int size, const float* x, const float* sums) {
      const int num_rows = std::min(size, rows.num_rows - first_row), step = tiles_at_once(size);
      const RunKernel run = find_kernel(weights.bits, size, false), single = find_kernel(weights.bits, size, true);
      float out[kMaxBlockRows * 3 * kLanes];
      for (int64_t tile = tiles.begin, count; tile < tiles.end; tile += count) {
        count = tile + step <= tiles.end ? step : 1;
        (count == step ? run : single)(weights, x, sums, tile, at_once * team.size, out);
        const int first = tile * kLanes, width = std::min<int>(count * kLanes, weights.num_outputs - first);
        for (int row = 0; row < num_rows; row++) emit(first_row + row, first, out + row * count * kLanes, width);
      }
    });
  });
}

}  // namespace mtplx
