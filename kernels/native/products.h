// Products y = x Wᵀ for any number of rows, whatever the weights are made of.
//
// 16 outputs lie side by side, a tile, so that one vector holds weight k of all of them, and no sum crosses lanes. What a
// register holds of a tile is a slice of it.
//
// Arithmetic of one output, the same whatever shares the call: within a group of inputs t = Σ w·x, step by step from
// k = 0 on; then the source adds t to y. Group by group.
//
// A source knows how weights lie. It has
//   Weights              num_groups(), num_outputs, num_tiles()
//   Unit, kBlockUnits    what weights consist of, and how many of these a block of a tile takes
//   tile(weights, i), blocks(weights)   where a tile begins, the blocks of a group; the unit of lane n is n units on
//   Input, kBlockInputs  what a row consists of, and how many of these a block of inputs takes
//   Weight, Value        what a step takes of a slice, and of a row
//   Sum, kSums           what sums up a slice, and how many registers it takes
//   kSteps               how many steps a block takes
//   weight<I>(block)     what step I takes of a slice's block
//   input<I>(x)          what it takes of the inputs of a row, in all lanes
//   add(w, input, t)     a step: the input times the weights, to the sum
//   end_block(t)         what is done to a sum after each block
//   Group                of a slice: made from weights, tile, its first lane in that, and number; add(t, block of rows,
//                        index, y); fetch(weights, tile, number), into the outer caches
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "parallel.h"
#include "rows.h"
#include "simd.h"

namespace mtplx {

constexpr int tiles_of(int num_outputs) { return (num_outputs + kLanes - 1) / kLanes; }

// How many tiles a kernel takes at once: as many as fill half the registers with their sums, of so many registers for a
// slice, but no more than it takes to keep the multipliers busy.
constexpr int kMostTiles = kRegisters == 16 ? 2 : 3;
constexpr int tiles_at_once(int num_sums) {
  return std::clamp(kRegisters / 2 / num_sums / kRegistersPerVector, 1, kMostTiles);
}

// How many slices of these tiles: all of them, or a part where the sums of one tile would leave no registers for others.
constexpr int slices_at_once(int num_tiles, int num_sums) {
  int slices = num_tiles * kRegistersPerVector;
  while (slices > 1 && slices * num_sums > 3 * kRegisters / 4) slices /= 2;
  return slices;
}

// The tile that a member will come to next: what it is made of can be on its way meanwhile.
template <typename Weights>
struct NextTile {
  const Weights* weights;
  int64_t tile;
};

// Products of the `Rows` rows of a block with `Tiles` neighbouring tiles, to out [Rows][Tiles * 16].
template <typename Source, int Rows, int Tiles>
class Kernel {
 public:
  using Weights = typename Source::Weights;
  using Unit = typename Source::Unit;

  // `next` are as many tiles that will be wanted next.
  static void run(const Weights& weights, const RowBlock& block, int first_tile, const NextTile<Weights>& next,
                  float* out) {
#pragma GCC unroll 16
    for (int lane = 0; lane < kOutputs; lane += kSlices * kRegisterLanes)
      run_slices(weights, block, first_tile, lane, next, out + lane);
  }

 private:
  static constexpr int kOutputs = Tiles * kLanes, kSlices = slices_at_once(Tiles, Rows * Source::kSums);
  static constexpr int kRunTiles = kSlices > kRegistersPerVector ? kSlices / kRegistersPerVector : 1;
  using Sums = typename Source::Sum[kSlices][Rows];
  using Input = typename Source::Input;

  // Of the slices from `lane` of the first tile on: of that and those after it, or of a part of it.
  static inline __attribute__((always_inline)) void run_slices(const Weights& weights, const RowBlock& block,
                                                               int first_tile, int lane, const NextTile<Weights>& next,
                                                               float* out) {
    constexpr int kLine = 64 / sizeof(Unit);
    const int num_groups = weights.num_groups(), blocks = Source::blocks(weights);
    const Unit *at[kRunTiles], *ahead[kRunTiles];
    for (int tile = 0; tile < kRunTiles; tile++) {
      at[tile] = Source::tile(weights, first_tile + tile) + lane;
      ahead[tile] = Source::tile(*next.weights, next.tile + tile);
    }
    const auto* x = reinterpret_cast<const Input*>(block.values);
    vregister total[kSlices][Rows] = {};
    for (int g = 0; g < num_groups; g++) {
      Sums t = {};
      for (int b = 0; b < blocks; b++) {
        for (int tile = 0; lane == 0 && tile < kRunTiles; tile++) {
          for (int i = 0; i < Source::kBlockUnits; i += kLine) prefetch(ahead[tile] + i);
          ahead[tile] += Source::kBlockUnits;
        }
        add_block(at, x, t, std::make_integer_sequence<int, Source::kSteps>{});
#pragma GCC unroll 16
        for (int slice = 0; slice < kSlices; slice++)
#pragma GCC unroll 16
          for (int row = 0; row < Rows; row++) Source::end_block(t[slice][row]);
        x += Source::kBlockInputs * Rows;
        for (int tile = 0; tile < kRunTiles; tile++) at[tile] += Source::kBlockUnits;
      }
      for (int tile = 0; lane == 0 && tile < kRunTiles; tile++)
        Source::Group::fetch(*next.weights, next.tile + tile, g);
#pragma GCC unroll 16
      for (int slice = 0; slice < kSlices; slice++) {
        const typename Source::Group group(weights, first_tile + tile_of(slice), lane + lane_of(slice), g);
#pragma GCC unroll 16
        for (int row = 0; row < Rows; row++) group.add(t[slice][row], block, g * Rows + row, total[slice][row]);
      }
    }
    for (int row = 0; row < Rows; row++)
      for (int slice = 0; slice < kSlices; slice++)
        store(out + row * kOutputs + slice * kRegisterLanes, total[slice][row]);
  }

  static constexpr int tile_of(int slice) { return slice / kRegistersPerVector; }
  static constexpr int lane_of(int slice) { return slice % kRegistersPerVector * kRegisterLanes; }

  template <int... I>
  static inline __attribute__((always_inline)) void add_block(const Unit* const (&at)[kRunTiles], const Input* x, Sums& t,
                                                              std::integer_sequence<int, I...>) {
    (add<I>(at, x, t), ...);
  }

  template <int I>
  static inline __attribute__((always_inline)) void add(const Unit* const (&at)[kRunTiles], const Input* x, Sums& t) {
    if constexpr (Rows < kSlices) {  // the fewer of both wait in registers for the others
      typename Source::Value values[Rows];
#pragma GCC unroll 16
      for (int row = 0; row < Rows; row++) values[row] = Source::template input<I>(x + row * Source::kBlockInputs);
#pragma GCC unroll 16
      for (int slice = 0; slice < kSlices; slice++) {
        const auto w = Source::template weight<I>(at[tile_of(slice)] + lane_of(slice));
#pragma GCC unroll 16
        for (int row = 0; row < Rows; row++) Source::add(w, values[row], t[slice][row]);
      }
    } else {
      typename Source::Weight w[kSlices];
#pragma GCC unroll 16
      for (int slice = 0; slice < kSlices; slice++) w[slice] = Source::template weight<I>(at[tile_of(slice)] + lane_of(slice));
#pragma GCC unroll 16
      for (int row = 0; row < Rows; row++) {
        const auto value = Source::template input<I>(x + row * Source::kBlockInputs);
#pragma GCC unroll 16
        for (int slice = 0; slice < kSlices; slice++) Source::add(w[slice], value, t[slice][row]);
      }
    }
  }
};

template <typename Weights>
using RunKernel = void (*)(const Weights&, const RowBlock&, int first_tile, const NextTile<Weights>&, float* out);

// A source's kernel for these rows of a block; for as many tiles as it takes at once, or for a single one.
template <typename Source>
RunKernel<typename Source::Weights> kernel_of(int rows, bool single_tile) {
  const auto choose = [&]<int Rows>() -> RunKernel<typename Source::Weights> {
    if constexpr (Rows > kMaxBlockRows)
      return nullptr;
    else
      return single_tile ? &Kernel<Source, Rows, 1>::run : &Kernel<Source, Rows, tiles_at_once(Rows * Source::kSums)>::run;
  };
  switch (rows) {
    case 1: return choose.template operator()<1>();
    case 2: return choose.template operator()<2>();
    case 3: return choose.template operator()<3>();
    case 4: return choose.template operator()<4>();
    case 5: return choose.template operator()<5>();
    case 6: return choose.template operator()<6>();
    default: return choose.template operator()<8>();
  }
}

// Products of all rows with a range of tiles, after which come those at `next`. Calls `emit(row, first output, values,
// count)` for every run of results.
template <typename Weights, typename Emit>
void multiply_tiles(const Weights& weights, const PackedRows& rows, const Team::Range& tiles,
                    const NextTile<Weights>& next, Emit emit) {
  rows.for_each_block([&](int first_row, int size, const RowBlock& block) {
    const int num_rows = std::min(size, rows.num_rows - first_row), step = tiles_at_once(size * rows.form.num_sums());
    const RunKernel<Weights> run = find_kernel(weights, rows.form, size, false);
    const RunKernel<Weights> single = find_kernel(weights, rows.form, size, true);
    float out[kMaxBlockRows * kMostTiles * kLanes];
    for (int64_t tile = tiles.begin, count; tile < tiles.end; tile += count) {
      count = tile + step <= tiles.end ? step : 1;
      const NextTile<Weights> following = tile + count < tiles.end ? NextTile<Weights>{&weights, tile + count} : next;
      (count == step ? run : single)(weights, block, tile, following, out);
      const int first = tile * kLanes, width = std::min<int>(count * kLanes, weights.num_outputs - first);
      for (int row = 0; row < num_rows; row++) emit(first_row + row, first, out + row * count * kLanes, width);
    }
  });
}

// How many tiles a member takes at a time, of a product that goes through `at_once` in one go. Taking waits for all that
// the processor has under way, so not too often.
inline int tiles_to_take(int num_tiles, int at_once, int team_size) {
  constexpr int kTimes = 4;
  const int steps = (num_tiles + at_once - 1) / at_once;
  return (steps + kTimes * team_size - 1) / (kTimes * team_size) * at_once;
}

// This member's share of a product, after which it will come to its share of the `following` one, if that is known. Calls
// `emit` as above.
template <typename Weights, typename Emit>
void multiply(const Weights& weights, const PackedRows& rows, const Team& team, const Weights* following, Emit emit) {
  const int at_once = tiles_at_once(block_rows(rows.num_rows) * rows.form.num_sums());
  const int64_t end = team.part(weights.num_tiles(), at_once).end;
  const NextTile<Weights> after{following ? following : &weights,
                                following ? team.part(following->num_tiles(), at_once).begin : end};
  team.share(weights.num_tiles(), at_once, tiles_to_take(weights.num_tiles(), at_once, team.size),
             [&](Team::Range tiles) {
               const bool goes_on = tiles.end < end;
               multiply_tiles(weights, rows, tiles, goes_on ? NextTile<Weights>{&weights, tiles.end} : after, emit);
             });
}

// Below this many multiplications a second thread costs more than it saves.
constexpr int64_t kWorthSharing = 1 << 16;

// The whole product of x [num rows, num inputs], to y [num rows, num outputs]. Missing inputs of the last group are 0.
template <typename Weights>
void multiply_rows(const Weights& weights, int group, RowForm form, const float* x, int num_rows, int num_inputs, float* y) {
  if (num_rows == 0) return;
  PackedRows rows(num_rows, weights.num_inputs, group, form);
  const int64_t work = int64_t(num_rows) * num_inputs * weights.num_outputs;
  run_in_parallel(work > kWorthSharing, [&](const Team& team) {
    rows.pack(team.part(rows.num_groups), [&](int row, int k, float* values) {
      const int count = std::min(group, num_inputs - k);
      std::copy_n(x + int64_t(row) * num_inputs + k, count, values);
      std::fill(values + count, values + group, 0.0f);
    });
    team.barrier();
    multiply<Weights>(weights, rows, team, nullptr, [&](int row, int first, const float* values, int count) {
      std::copy_n(values, count, y + int64_t(row) * weights.num_outputs + first);
    });
  });
}

}  // namespace mtplx
