// From a row of logits to the few tokens that can be drawn, and drawing.
#include "sampling.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "candidates.h"
#include "doubles.h"
#include "tail.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

constexpr int kSpan = 64;  // neighbouring tokens that share a maximum
constexpr double kLowestExponent = 700;  // a token of weight e^-700 is never drawn, and sums no longer see it
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Peak {
  float value;
  bool has_nan, all_finite;
};

// The highest logit of all and of each span.
Peak find_peak(std::span<const float> logits, std::vector<float>& span_peaks) {
  const int n = logits.size();
  span_peaks.resize((n + kSpan - 1) / kSpan);
  vregister lowest = fill_register(kInfinity);
  iregister nan = {};
  float highest = -kInfinity;
  for (int first = 0; first < n; first += kSpan) {
    vregister peak = fill_register(-kInfinity);
    for_each_register(std::min(kSpan, n - first), [&](int i, int count) __attribute__((always_inline)) {
      vregister v = load_first(logits.data() + first + i, count);
      for (int lane = count; lane < kRegisterLanes; lane++) v[lane] = v[0];
      peak = v > peak ? v : peak;
      lowest = v < lowest ? v : lowest;
      nan |= v != v;
    });
    span_peaks[first / kSpan] = greatest(peak);
    highest = std::max(highest, span_peaks[first / kSpan]);
  }
  Peak peak{highest, false, highest < kInfinity};
  for (int lane = 0; lane < kRegisterLanes; lane++) {
    peak.has_nan |= nan[lane] != 0;
    peak.all_finite &= !nan[lane] && lowest[lane] > -kInfinity;
  }
  return peak;
}

// The same where there is something to draw.
Peak find_finite_peak(std::span<const float> logits, std::vector<float>& span_peaks) {
  const Peak peak = find_peak(logits, span_peaks);
  if (peak.has_nan || !std::isfinite(peak.value)) throw std::invalid_argument("the logits have no finite maximum");
  return peak;
}

// Memory that a call leaves to the next on this thread: for large vocabularies fresh pages cost more than the work.
struct Scratch {
  std::vector<float> span_peaks, ordered_peaks;
  Candidates candidates;
  BorderSearch search;
};

// Not inline: a compiler that sees whose memory it is asks for its place at every access.
[[gnu::noinline]] Scratch& scratch_of_thread() {
  thread_local Scratch scratch;
  return scratch;
}

inline dregister weights_of(const dregister& logits, float peak, double temperature) {
  return exponential((logits - double(peak)) * (1.0 / temperature));
}

// The weights of 8 logits to `to`, and to their sums.
inline void weigh_eight(const float* logits, float peak, double temperature, double* to, DoubleSums& total) {
  for (int part = 0; part < kRegistersPerVector; part++) {
    const dregister weights = weights_of(load_doubles(logits + part * kDoublesPerRegister), peak, temperature);
    store(to + part * kDoublesPerRegister, weights);
    total.registers[part] += weights;
  }
}

// The weights of all logits, eight by eight: `place(i)` is where those from i on go, as many as there are then. Their sum.
template <typename Place>
double weigh(std::span<const float> logits, float peak, double temperature, Place place) {
  DoubleSums total;
  size_t i = 0;
  for (; i + kDoubleLanes <= logits.size(); i += kDoubleLanes)
    weigh_eight(logits.data() + i, peak, temperature, place(i), total);
  if (i < logits.size()) {
    float rest[kDoubleLanes];
    double weights[kDoubleLanes];
    std::fill(std::copy(logits.begin() + i, logits.end(), rest), rest + kDoubleLanes, -kInfinity);
    weigh_eight(rest, peak, temperature, weights, total);
    std::copy_n(weights, logits.size() - i, place(i));
  }
  return total.sum();
}

double total_weight(std::span<const float> logits, float peak, double temperature) {
  double unused[kDoubleLanes];
  return weigh(logits, peak, temperature, [&](size_t) { return unused; });
}

// The logit of a weight, a little lower for safety: rounding must not drop a token before it is judged.
float logit_of(double weight, float peak, double temperature) {
  const double logit = peak + temperature * std::log(weight);
  return float(logit - 1e-5 * (std::abs(peak) + std::abs(logit)));
}

// No token below this logit is kept. As many spans as top_k reach it, so as many tokens do. And tokens of at most
// (1 - top_p) / V of the whole weight have together less than top-p drops.
float find_floor(std::span<const float> logits, const Cuts& cuts, float peak, Scratch& scratch, double* total) {
  float floor = -kInfinity;
  if (cuts.min_p > 0) floor = logit_of(cuts.min_p, peak, cuts.temperature);
  floor = std::max(floor, float(peak - kLowestExponent * cuts.temperature));
  if (cuts.top_k > 0) {
    if (size_t(cuts.top_k) > scratch.span_peaks.size()) return floor;
    auto& ordered = scratch.ordered_peaks;
    ordered = scratch.span_peaks;
    const auto last = ordered.begin() + cuts.top_k - 1;
    std::nth_element(ordered.begin(), last, ordered.end(), std::greater<>());
    return std::max(floor, *last);
  }
  if (cuts.top_p < 1 && cuts.min_p <= 0) {
    *total = total_weight(logits, peak, cuts.temperature);
    floor = std::max(floor, logit_of((1 - cuts.top_p) * *total / logits.size(), peak, cuts.temperature));
  }
  return floor;
}

void collect(std::span<const float> logits, float floor, float peak, double temperature,
             const std::vector<float>& span_peaks, Candidates& into) {
  const int n = logits.size();
  into.tokens.resize(n + kDoubleLanes);
  into.logits.resize(n + kDoubleLanes);
  int size = 0;
  for (int first = 0; first < n; first += kSpan) {
    if (span_peaks[first / kSpan] < floor) continue;
    for (int token = first; token < std::min(first + kSpan, n); token++) {
      into.tokens[size] = token, into.logits[size] = logits[token];
      size += logits[token] >= floor;
    }
  }
  into.tokens.resize(size);
  into.logits.resize(size);
  into.weights.resize(size);
  weigh(into.logits, peak, temperature, [&](size_t i) { return into.weights.data() + i; });
}

template <typename Measure>
void cut(Candidates& candidates, BorderSearch& search, double enough, Measure measure) {
  const Border border = search.find(candidates, enough, measure);
  candidates.filter([&](int i) {
    const float logit = candidates.logits[i];
    return (logit > border.logit) | ((logit == border.logit) & (candidates.tokens[i] <= border.token));
  });
}

double total_of(std::span<const double> weights) {
  DoubleSums total;
  size_t i = 0;
  for (; i + kDoubleLanes <= weights.size(); i += kDoubleLanes)
    for (int part = 0; part < kRegistersPerVector; part++)
      total.registers[part] += load<dregister>(weights.data() + i + part * kDoublesPerRegister);
  return std::accumulate(weights.begin() + i, weights.end(), total.sum());
}

SparseDistribution normalised(std::span<const int32_t> tokens, std::span<const double> weights) {
  SparseDistribution result{{tokens.begin(), tokens.end()}, {weights.begin(), weights.end()}};
  const double total = total_of(weights);
  for (double& probability : result.probabilities) probability /= total;
  return result;
}

}  // namespace

Greedy greedy(std::span<const float> logits) {
  auto& span_peaks = scratch_of_thread().span_peaks;
  const Peak peak = find_peak(logits, span_peaks);
  const auto span = std::find(span_peaks.begin(), span_peaks.end(), peak.value) - span_peaks.begin();
  const auto at = std::find(logits.begin() + span * kSpan, logits.end(), peak.value);
  return {at == logits.end() ? 0 : int(at - logits.begin()), peak.all_finite};
}

void whole_distribution(std::span<const float> logits, double temperature, double* to) {
  const Peak peak = find_finite_peak(logits, scratch_of_thread().span_peaks);
  const double inverse = 1 / weigh(logits, peak.value, temperature, [&](size_t i) { return to + i; });
  for (size_t i = 0; i < logits.size(); i++) to[i] *= inverse;
}

SparseDistribution cut_distribution(std::span<const float> logits, const Cuts& cuts) {
  Scratch& scratch = scratch_of_thread();
  Candidates& candidates = scratch.candidates;
  const Peak peak = find_finite_peak(logits, scratch.span_peaks);
  double total = 0;
  const float floor = find_floor(logits, cuts, peak.value, scratch, &total);
  collect(logits, floor, peak.value, cuts.temperature, scratch.span_peaks, candidates);
  if (cuts.min_p > 0) candidates.filter([&](int i) { return candidates.weights[i] >= cuts.min_p; });
  if (cuts.top_k > 0 && cuts.top_k < candidates.size())
    cut(candidates, scratch.search, cuts.top_k, [](int) { return 1.0; });
  if (cuts.top_p < 1) {
    if (total == 0) total = total_of(candidates.weights);
    cut(candidates, scratch.search, cuts.top_p * total, [&](int i) { return candidates.weights[i]; });
  }
  return normalised(candidates.tokens, candidates.weights);
}

double probability_of(const SparseView& p, int token) {
  const auto at = std::lower_bound(p.tokens.begin(), p.tokens.end(), token);
  return at != p.tokens.end() && *at == token ? p.probabilities[at - p.tokens.begin()] : 0.0;
}

int draw(const SparseView& p, double uniform) {
  const double sought = uniform * std::accumulate(p.probabilities.begin(), p.probabilities.end(), 0.0);
  size_t i = 0;
  for (double cumulative = 0; i + 1 < p.tokens.size(); i++) {
    cumulative += p.probabilities[i];
    if (cumulative > sought) break;
  }
  return p.tokens[i];
}

SparseDistribution residual(const SparseView& p, const SparseView& q) {
  std::vector<int32_t> tokens;
  std::vector<double> rest;
  size_t at = 0;
  for (size_t i = 0; i < p.tokens.size(); i++) {
    while (at < q.tokens.size() && q.tokens[at] < p.tokens[i]) at++;
    const bool shared = at < q.tokens.size() && q.tokens[at] == p.tokens[i];
    const double left = p.probabilities[i] - (shared ? q.probabilities[at] : 0.0);
    if (left > 0) tokens.push_back(p.tokens[i]), rest.push_back(left);
  }
  return tokens.empty() ? normalised(p.tokens, p.probabilities) : normalised(tokens, rest);
}

// ---- what Python calls ----------------------------------------------------------------------------------------------

namespace {

template <typename T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::span<const T> view(const Input<T>& array) {
  return {array.data(), array.size()};
}

SparseView view(const Input<int32_t>& tokens, const Input<double>& probabilities) {
  if (tokens.size() != probabilities.size() || tokens.size() == 0)
    throw std::invalid_argument("there must be a probability for each token, and a token");
  return {view(tokens), view(probabilities)};
}

template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T>&& values) {
  auto* const kept = new std::vector<T>(std::move(values));
  const nb::capsule owner(kept, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
  return {kept->data(), {kept->size()}, owner};
}

auto to_numpy(SparseDistribution&& p) {
  return std::pair(to_numpy(std::move(p.tokens)), to_numpy(std::move(p.probabilities)));
}

}  // namespace

void bind_sampling(nb::module_& m) {
  m.def("greedy", [](const Input<float>& logits) {
    const Greedy found = greedy(view(logits));
    return std::pair(found.token, found.all_finite);
  }, nb::arg("logits"));
  m.def("whole_distribution", [](const Input<float>& logits, double temperature) {
    double* const memory = new double[logits.size()];
    const nb::capsule owner(memory, [](void* p) noexcept { delete[] static_cast<double*>(p); });
    whole_distribution(view(logits), temperature, memory);
    return nb::ndarray<nb::numpy, double, nb::ndim<1>>(memory, {logits.size()}, owner);
  }, nb::arg("logits"), nb::arg("temperature"));
  m.def("cut_distribution", [](const Input<float>& logits, double temperature, int top_k, double top_p, double min_p) {
    return to_numpy(cut_distribution(view(logits), {temperature, top_k, top_p, min_p}));
  }, nb::arg("logits"), nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"), nb::arg("min_p"));
  m.def("probability_of", [](const Input<int32_t>& tokens, const Input<double>& probabilities, int token) {
    return probability_of(view(tokens, probabilities), token);
  }, nb::arg("tokens"), nb::arg("probabilities"), nb::arg("token"));
  m.def("draw", [](const Input<int32_t>& tokens, const Input<double>& probabilities, double uniform) {
    return draw(view(tokens, probabilities), uniform);
  }, nb::arg("tokens"), nb::arg("probabilities"), nb::arg("uniform"));
  m.def("residual", [](const Input<int32_t>& p_tokens, const Input<double>& p, const Input<int32_t>& q_tokens,
                       const Input<double>& q) {
    return to_numpy(residual(view(p_tokens, p), view(q_tokens, q)));
  }, nb::arg("p_tokens"), nb::arg("p"), nb::arg("q_tokens"), nb::arg("q"));
}

}  // namespace mtplx
