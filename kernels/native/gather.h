// Products in which each row chooses its weights among those of many experts. Knows no MLX and no kind of weights.
//
// The rows of an expert are packed together, in their order, so that its weights are read once; a row's bits do not
// depend on who else chose its expert.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "products.h"

namespace mtplx {

// The rows of one expert.
struct ExpertRows {
  int expert;
  const int* rows;  // their numbers
  PackedRows packed;
};

class GatheredRows {
 public:
  GatheredRows(const uint32_t* experts, int num_rows, int num_inputs, int group, RowForm form) : order_(num_rows) {
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return experts[a] < experts[b]; });
    for (int begin = 0, end; begin < num_rows; begin = end) {
      const uint32_t expert = experts[order_[begin]];
      for (end = begin + 1; end < num_rows && experts[order_[end]] == expert;) end++;
      chosen_.push_back({int(expert), order_.data() + begin, PackedRows(end - begin, num_inputs, group, form)});
    }
  }

  // Every member's part; `fill(row, k, values)` gives the group of a row's inputs from k on.
  template <typename Fill>
  void pack(const Team& team, Fill fill) {
    for (auto& each : chosen_)
      each.packed.pack(team.part(each.packed.num_groups),
                       [&](int i, int k, float* values) { fill(each.rows[i], k, values); });
  }

  // This member's share of the products; `weights_of(expert)` has the weights. Calls `emit` as multiply does.
  template <typename WeightsOf, typename Emit>
  void multiply(WeightsOf weights_of, int num_tiles, const Team& team, Emit emit) const {
    struct Unit {
      const ExpertRows* chosen;
      Team::Range tiles;
    };
    std::vector<Unit> units;
    for (const auto& each : chosen_) {
      const int at_once = tiles_at_once(block_rows(each.packed.num_rows) * each.packed.form.num_sums());
      for (int tile = 0; tile < num_tiles; tile += at_once)
        units.push_back({&each, {tile, std::min(tile + at_once, num_tiles)}});
    }
    team.share(units.size(), [&](Team::Range range) {
      for (int64_t i = range.begin; i < range.end; i++) {
        const auto& [chosen, tiles] = units[i];
        const auto weights = weights_of(chosen->expert);
        multiply_tiles(weights, chosen->packed, tiles, NextTile<decltype(weights_of(0))>{&weights, tiles.end},
                       [&](int row, int first, const float* values, int count) {
                         emit(chosen->rows[row], first, values, count);
                       });
      }
    });
  }

 private:
  std::vector<int> order_;
  std::vector<ExpertRows> chosen_;
};

// The whole product of rows x, whose experts are given, to y [num rows, num outputs]. `row_of(row)` is where a row's
// inputs lie; missing inputs of the last group are 0.
template <typename RowOf, typename WeightsOf>
void multiply_gathered(RowOf row_of, const uint32_t* experts, int num_rows, int num_inputs, WeightsOf weights_of,
                       int group, RowForm form, float* y) {
  if (num_rows == 0) return;
  const auto weights = weights_of(0);
  const int num_outputs = weights.num_outputs;
  GatheredRows rows(experts, num_rows, weights.num_inputs, group, form);
  const int64_t work = int64_t(num_rows) * num_inputs * num_outputs;
  run_in_parallel(work > kWorthSharing, [&](const Team& team) {
    rows.pack(team, [&](int row, int k, float* values) {
      const int count = std::min(group, num_inputs - k);
      std::copy_n(row_of(row) + k, count, values);
      std::fill(values + count, values + group, 0.0f);
    });
    team.barrier();
    rows.multiply(weights_of, weights.num_tiles(), team, [&](int row, int first, const float* values, int count) {
      std::copy_n(values, count, y + int64_t(row) * num_outputs + first);
    });
  });
}

}  // namespace mtplx
