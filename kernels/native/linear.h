// Products with quantized weights, y = x Wᵀ, for any number of rows. Knows memory layout and arithmetic; knows no MLX.
//
// Layout: 16 outputs lie side by side, a tile. Of every 32 weights of an output, its `bits` words stand in one lane:
// words [tiles][K / 32][bits][16]; scales and biases [tiles][K / group][16]. So one vector holds weight k of 16 outputs,
// and no sum crosses lanes.
//
// Arithmetic of one output, the same whatever shares the call: within a group t = Σ q·x, from k = 0 on, in one
// multiply-add a step; then y += scale·t and y += bias·Σx. Group by group.
#pragma once

#include <cstdint>
#include <utility>

#include "parallel.h"
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

// Σx over each group: part of every product with these inputs. x [M, K] to sums [M, K / group], this member's rows.
inline void group_sums(const float* x, int num_rows, int num_inputs, int group, float* sums, const Team& team) {
  const int num_groups = num_inputs / group;
  const auto rows = team.part(num_rows);
  for (int64_t row = rows.begin; row < rows.end; row++)
    for (int g = 0; g < num_groups; g++) {
      const float* from = x + row * num_inputs + g * group;
      vfloat total = load<vfloat>(from);
      for (int k = kLanes; k < group; k += kLanes) total += load<vfloat>(from + k);
      sums[row * num_groups + g] = sum(total);
    }
}

// Weight I of 32 in every lane, out of the lane's `Bits` words.
template <int Bits, int I>
inline vfloat unpack(const uint32_t* words) {
  constexpr int word = I * Bits / 32, shift = I * Bits % 32;
  vuint value = load<vuint>(words + word * kLanes) >> shift;
  if constexpr (shift + Bits > 32) value |= load<vuint>(words + (word + 1) * kLanes) << (32 - shift);
  if constexpr (shift + Bits != 32) value &= (1u << Bits) - 1;
  return to_float(value);
}

// Products of `Rows` rows with `Tiles` neighbouring tiles. Rows come interleaved, x [K][Rows] and sums [K / group][Rows]:
// one pointer reaches them all.
template <int Bits, int Rows, int Tiles>
struct Kernel {
  const QuantizedWeights& weights;
  const float* x;
  const float* sums;

  using Sums = vfloat[Tiles][Rows];

  template <int I>
  inline __attribute__((always_inline)) void step(const uint32_t* const (&words)[Tiles], const float* at, Sums& t) const {
    vfloat q[Tiles];
    for (int tile = 0; tile < Tiles; tile++) q[tile] = unpack<Bits, I>(words[tile]);
#pragma GCC unroll 16
    for (int row = 0; row < Rows; row++) {
      const vfloat value = broadcast(at[I * Rows + row]);
#pragma GCC unroll 4
      for (int tile = 0; tile < Tiles; tile++) t[tile][row] += q[tile] * value;
    }
  }

  template <int... I>
  inline __attribute__((always_inline)) void block(const uint32_t* const (&words)[Tiles], const float* at, Sums& t,
                                                   std::integer_sequence<int, I...>) const {
    (step<I>(words, at, t), ...);
  }

  inline __attribute__((always_inline)) void run(int first_tile, float (*out)[kLanes * Tiles]) const {
    const int num_groups = weights.num_groups(), blocks = weights.group / kBlock;
    const uint32_t* from[Tiles];
    for (int tile = 0; tile < Tiles; tile++) from[tile] = weights.words + (first_tile + tile) * weights.tile_words();
    Sums total = {};
    for (int g = 0; g < num_groups; g++) {
      Sums t = {};
      for (int b = 0; b < blocks; b++) {
        block(from, x + int64_t(g * blocks + b) * kBlock * Rows, t, std::make_integer_sequence<int, kBlock>{});
        for (int tile = 0; tile < Tiles; tile++) from[tile] += Bits * kLanes;
      }
      for (int tile = 0; tile < Tiles; tile++) {
        const int64_t at = (int64_t(first_tile + tile) * num_groups + g) * kLanes;
        const vfloat scale = load<vfloat>(weights.scales + at), bias = load<vfloat>(weights.biases + at);
#pragma GCC unroll 16
        for (int row = 0; row < Rows; row++) {
          total[tile][row] += scale * t[tile][row];
          total[tile][row] += bias * broadcast(sums[g * Rows + row]);
        }
      }
    }
    for (int row = 0; row < Rows; row++)
      for (int tile = 0; tile < Tiles; tile++) store(out[row] + tile * kLanes, total[tile][row]);
  }
};

}  // namespace mtplx
