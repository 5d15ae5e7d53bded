// From a row of logits to the few tokens that can be drawn, and drawing. Knows arithmetic; knows no MLX and no Python.
//
// The vocabulary is never sorted. A bound drops the tokens that no cut could keep, by blocks where it can; what is left
// is narrowed to the border of a cut by counting in bins. Weights and sums are doubles.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mtplx {

struct Cuts {
  double temperature;
  int top_k;     // 0: none
  double top_p;  // 1: none
  double min_p;  // 0: none
};

struct Greedy {
  int token;  // the lowest among the most likely; 0 where all are NaN
  bool all_finite;
};

// Tokens in rising order, with probabilities that sum to 1.
struct SparseDistribution {
  std::vector<int32_t> tokens;
  std::vector<double> probabilities;
};
struct SparseView {
  std::span<const int32_t> tokens;
  std::span<const double> probabilities;
};

Greedy greedy(std::span<const float> logits);

// The probability of every token at this temperature, to `to` [V]. Of what it throws, as below.
void whole_distribution(std::span<const float> logits, double temperature, double* to);

// Temperature, then min-p, top-k and top-p, each on what the one before left; lower tokens first among equals. -inf is
// a token that cannot be drawn. Throws std::invalid_argument for NaN, for +inf, and when all are -inf.
SparseDistribution cut_distribution(std::span<const float> logits, const Cuts& cuts);

double probability_of(const SparseView& p, int token);

// The token at `uniform` in [0, 1) of the cumulative distribution; p must have a token.
int draw(const SparseView& p, double uniform);

// norm(max(p - q, 0)), what replaces a token drawn from q and rejected; p where nothing is left.
SparseDistribution residual(const SparseView& p, const SparseView& q);

}  // namespace mtplx
