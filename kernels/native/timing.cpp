// What this machine can do at best: how fast its threads read memory, and multiply and add; and how fast products are, by
// themselves. For benchmarks.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <limits>

#include "half.h"
#include "parallel.h"
#include "projection_arrays.h"
#include "rows.h"
#include "simd.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

constexpr int kRuns = 20;

// The least time that `work(team)` took, in seconds.
template <typename Work>
double best_time(const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; run++) {
    const auto start = std::chrono::steady_clock::now();
    run_in_parallel(true, work);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// Bytes a second, reading that many bytes over and over.
double read_rate(int64_t num_bytes) {
  const int64_t count = num_bytes / int64_t(sizeof(float));
  const Floats memory = make_floats(count);
  std::fill_n(memory.get(), count, 1.0f);
  std::atomic<int> sink{0};
  const double seconds = best_time([&](const Team& team) {
    const auto part = team.part(count / (4 * kLanes));
    vfloat sums[4] = {};
    for (int64_t i = part.begin; i < part.end; i++)
      for (int j = 0; j < 4; j++) sums[j] += load<vfloat>(memory.get() + (4 * i + j) * kLanes);
    sink += int(sum(sums[0] + sums[1] + sums[2] + sums[3]));  // or the loop would be found to be of no use
  });
  return num_bytes / seconds;
}

// Multiplications and additions a second, both counted, in registers.
double arithmetic_rate() {
  constexpr int kChains = 12;
  constexpr int64_t kSteps = 1 << 20;
  std::atomic<int> sink{0};
  int num_threads = 0;
  const double seconds = best_time([&](const Team& team) {
    vregister chains[kChains];
    for (int i = 0; i < kChains; i++) chains[i] = vregister{} + float(i);
    const vregister factor = vregister{} + 0.999f, addend = vregister{} + 0.001f;
    for (int64_t step = 0; step < kSteps; step++) {
#pragma GCC unroll 12
      for (int i = 0; i < kChains; i++) chains[i] = chains[i] * factor + addend;
    }
    for (int i = 1; i < kChains; i++) chains[0] += chains[i];
    sink += int(chains[0][0]);
    if (team.index == 0) num_threads = team.size;
  });
  return 2.0 * kSteps * kChains * kRegisterLanes * num_threads / seconds;
}

// Seconds that the products of some rows with all these weights take, one product after the other as in a pass.
double product_time(std::vector<ProjectionArrays> projections, int num_rows) {
  std::vector<QuantizedWeights> weights;
  std::vector<PackedRows> rows;
  int most_outputs = 0;
  for (auto& projection : projections) {
    projection.eval();
    weights.push_back(projection.get().weights);
    rows.emplace_back(num_rows, weights.back().num_inputs, weights.back().group,
                      RowForm{input_bytes(), weights.back().bits});
    const int group = weights.back().group;
    rows.back().pack({0, rows.back().num_groups}, [&](int row, int k, float* to) {
      for (int i = 0; i < group; i++) to[i] = 0.01f * float((7 * row + k + i) % 101 - 50);
    });
    most_outputs = std::max(most_outputs, weights.back().num_outputs);
  }
  const Floats out = make_floats(int64_t(num_rows) * most_outputs);
  return best_time([&](const Team& team) {
    for (size_t i = 0; i < weights.size(); i++) {
      const auto put = [&](int row, int first, const float* values, int count) {
        std::copy_n(values, count, out.get() + int64_t(row) * most_outputs + first);
      };
      multiply(weights[i], rows[i], team, &weights[(i + 1) % weights.size()], put);
      team.barrier();
    }
  });
}

}  // namespace

void bind_timing(nb::module_& m) {
  m.def("read_rate", &read_rate, nb::arg("num_bytes"));
  m.def("arithmetic_rate", &arithmetic_rate);
  m.def("product_time", &product_time, nb::arg("projections"), nb::arg("num_rows"));
}

}  // namespace mtplx
