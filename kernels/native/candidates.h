// The tokens that a cut chooses among, and where its border lies: found by counting in bins, not by sorting.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "tail.h"

namespace mtplx {

struct Candidates {
  std::vector<int32_t> tokens;  // rising
  std::vector<float> logits;
  std::vector<double> weights;  // e^((logit - peak) / temperature)

  int size() const { return tokens.size(); }

  // Keeps those at which `keeps(i)`, in their order.
  template <typename Keeps>
  void filter(Keeps keeps) {
    int kept = 0;
    for (int i = 0; i < size(); i++) {
      const bool is_kept = keeps(i);
      tokens[kept] = tokens[i], logits[kept] = logits[i], weights[kept] = weights[i];
      kept += is_kept;
    }
    tokens.resize(kept), logits.resize(kept), weights.resize(kept);
  }
};

struct Border {
  float logit;
  int token;  // the last of this logit that is kept
};

// Where, from the most likely candidate on, a sum reaches what is asked. Its memory is there to be used again.
class BorderSearch {
 public:
  // The candidate at which the sum of `measure(i)` reaches `enough`; the last if none does.
  template <typename Measure>
  Border find(const Candidates& candidates, double enough, Measure measure) {
    logits_ = candidates.logits.data();
    missing_ = enough;
    find_range(candidates.size());
    if (top_ > bottom_) {
      narrow(candidates.size(), std::identity(), measure);
    } else {
      active_.resize(candidates.size());
      std::iota(active_.begin(), active_.end(), 0);
    }
    while (active_.size() > kFewEnoughToSort && top_ > bottom_)
      narrow(active_.size(), [&](int j) { return active_[j]; }, measure);
    std::stable_sort(active_.begin(), active_.end(), [&](int a, int b) { return logits_[a] > logits_[b]; });
    size_t last = 0;
    for (; last + 1 < active_.size() && measure(active_[last]) < missing_; last++) missing_ -= measure(active_[last]);
    return {logits_[active_[last]], candidates.tokens[active_[last]]};
  }

 private:
  static constexpr int kBins = 1024;
  static constexpr size_t kFewEnoughToSort = 64;

  void find_range(int count) {
    vregister top = fill_register(logits_[0]), bottom = top;
    int i = 0;
    for (; i + kRegisterLanes <= count; i += kRegisterLanes) {
      const vregister v = load<vregister>(logits_ + i);
      top = v > top ? v : top;
      bottom = v < bottom ? v : bottom;
    }
    const auto lanes = [](const vregister& v) { return reinterpret_cast<const float*>(&v); };
    top_ = *std::max_element(lanes(top), lanes(top) + kRegisterLanes);
    bottom_ = *std::min_element(lanes(bottom), lanes(bottom) + kRegisterLanes);
    for (; i < count; i++) top_ = std::max(top_, logits_[i]), bottom_ = std::min(bottom_, logits_[i]);
  }

  // Splits `count` candidates, the jth of them being index(j), into bins by their logits. The bin where the sum reaches
  // what is missing becomes the active candidates; what is before it is no longer missing.
  template <typename Index, typename Measure>
  void narrow(int count, Index index, Measure measure) {
    const double top = top_, scale = kBins / (top - bottom_);
    double sums[kBins] = {};
    if (bins_.size() < size_t(count)) bins_.resize(count);
    for (int j = 0; j < count; j++) bins_[j] = std::min(int((top - logits_[index(j)]) * scale), kBins - 1);
    for (int j = 0; j < count; j++) sums[bins_[j]] += measure(index(j));
    int bin = 0;
    for (; bin + 1 < kBins && sums[bin] < missing_; bin++) missing_ -= sums[bin];

    if (active_.size() < size_t(count)) active_.resize(count);
    int size = 0;
    top_ = -std::numeric_limits<float>::infinity(), bottom_ = -top_;
    for (int j = 0; j < count; j++) {
      if (bins_[j] != bin) continue;
      const int i = index(j);
      active_[size++] = i;
      top_ = std::max(top_, logits_[i]), bottom_ = std::min(bottom_, logits_[i]);
    }
    active_.resize(size);
  }

  const float* logits_;
  double missing_;
  float top_, bottom_;
  std::vector<uint16_t> bins_;
  std::vector<int32_t> active_;
};

}  // namespace mtplx
