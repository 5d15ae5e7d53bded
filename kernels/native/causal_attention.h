// Causal attention over whole sequences and its gradients, for training. Knows arithmetic; knows no MLX.
//
// Row i of T sees the keys 0 … i, and of each chained key the one of its own row (as in the training-time test of EAGLE-3,
// 2503.01840, whose later steps go on from row i alone). With scores s = scale · q·k, weights p = softmax(s) and output
// o = Σ p v, the gradient by v is Σ p do; and with dp = do·v, that by s is ds = p (dp − Σ p dp), which gives those by q and
// k.
//
// A head is done by one member of a team, a block of rows at a time: their weights stay in the second cache.
#pragma once

#include <vector>

#include "matmul.h"
#include "softmax.h"

namespace mtplx {

// Rows of a head, [T, head size]: row t begins at data + t · step.
template <typename Float>
struct HeadRows {
  Float* data;
  int64_t step;

  Float* at(int64_t row) const { return data + row * step; }
  Matrix matrix(int first = 0) const { return {at(first), step, 1}; }
};

// What a head sees, or the gradients by that.
template <typename Float>
struct Seen {
  HeadRows<Float> keys, values;
  std::vector<HeadRows<Float>> chained_keys, chained_values;
};

inline float dot(const float* x, const float* y, int n) {
  return sum_of_registers(n, [&](int i, int count) __attribute__((always_inline)) {
    return load_first(x + i, count) * load_first(y + i, count);
  });
}

// to += factor · x.
inline void add(const float* x, float factor, int n, float* to) {
  for_each_register(n, [&](int i, int count) __attribute__((always_inline)) {
    store_first(to + i, load_first(to + i, count) + factor * load_first(x + i, count), count);
  });
}

class CausalAttention {
 public:
  CausalAttention(int num_rows, int head_size, int num_chained, float scale)
      : num_rows_(num_rows),
        size_(head_size),
        num_chained_(num_chained),
        scale_(scale),
        step_(num_rows + num_chained),
        packed_a_(make_floats(kPackedRows)),
        packed_b_(make_floats(packed_columns(std::max(num_rows, head_size)))),
        weights_(make_floats(kRowBlock * step_)),
        gradients_(make_floats(kRowBlock * step_)) {}

  void attend(const HeadRows<const float>& queries, const Seen<const float>& seen, const HeadRows<float>& out) {
    for_each_block([&](int first, int rows, int num_keys) {
      find_weights(queries, seen, first, rows, num_keys);
      product(matrix(weights_), seen.values.matrix(), rows, size_, num_keys, false, out, first);
      for (int row = 0; row < rows; row++)
        for (int i = 0; i < num_chained_; i++)
          add(seen.chained_values[i].at(first + row), chained(weights_, row)[i], size_, out.at(first + row));
    });
  }

  // From the gradients by the output. Those by what the head sees are added to what is there.
  void find_gradients(const HeadRows<const float>& queries, const Seen<const float>& seen,
                      const HeadRows<const float>& by_out, const HeadRows<float>& by_queries, const Seen<float>& by) {
    for_each_block([&](int first, int rows, int num_keys) {
      find_weights(queries, seen, first, rows, num_keys);
      product(matrix(weights_).transposed(), by_out.matrix(first), num_keys, size_, rows, true, by.values, 0);
      product(by_out.matrix(first), seen.values.matrix().transposed(), rows, num_keys, size_, false,
              {gradients_.get(), step_}, 0);
      for (int row = 0; row < rows; row++) {
        for (int i = 0; i < num_chained_; i++) {
          add(by_out.at(first + row), chained(weights_, row)[i], size_, by.chained_values[i].at(first + row));
          chained(gradients_, row)[i] = dot(by_out.at(first + row), seen.chained_values[i].at(first + row), size_);
        }
        to_score_gradients(row, num_keys);
      }
      product(matrix(gradients_), seen.keys.matrix(), rows, size_, num_keys, false, by_queries, first);
      product(matrix(gradients_).transposed(), queries.matrix(first), num_keys, size_, rows, true, by.keys, 0);
      for (int row = 0; row < rows; row++)
        for (int i = 0; i < num_chained_; i++) {
          const float gradient = chained(gradients_, row)[i];
          add(seen.chained_keys[i].at(first + row), gradient, size_, by_queries.at(first + row));
          add(queries.at(first + row), gradient, size_, by.chained_keys[i].at(first + row));
        }
    });
  }

 private:
  template <typename Work>
  void for_each_block(Work work) const {
    for (int first = 0; first < num_rows_; first += kRowBlock) {
      const int rows = std::min(kRowBlock, num_rows_ - first);
      work(first, rows, first + rows);
    }
  }

  Matrix matrix(const Floats& block) const { return {block.get(), step_, 1}; }
  float* chained(const Floats& block, int row) const { return block.get() + row * step_ + num_rows_; }

  void product(const Matrix& a, const Matrix& b, int m, int n, int k, bool adds, const HeadRows<float>& to, int first) {
    multiply(a, b, m, n, k, adds, to.at(first), to.step, Team(0, &alone_), packed_a_.get(), packed_b_.get());
  }

  // 0 for keys after a row.
  void find_weights(const HeadRows<const float>& queries, const Seen<const float>& seen, int first, int rows,
                    int num_keys) {
    product(queries.matrix(first), seen.keys.matrix().transposed(), rows, num_keys, size_, false,
            {weights_.get(), step_}, 0);
    for (int row = 0; row < rows; row++) {
      float* const scores = weights_.get() + row * step_;
      const int own = first + row + 1;
      // Those of the chain come after the row's own for the softmax, and then to their place.
      for (int i = 0; i < num_chained_; i++)
        scores[own + i] = dot(queries.at(first + row), seen.chained_keys[i].at(first + row), size_);
      for (int i = 0; i < own + num_chained_; i++) scores[i] *= scale_;
      softmax_row(scores, own + num_chained_, scores);
      std::copy_backward(scores + own, scores + own + num_chained_, scores + num_rows_ + num_chained_);
      if (own < num_keys) std::fill(scores + own, scores + num_keys, 0.0f);
    }
  }

  // The gradients by a row's weights become those by q·k.
  void to_score_gradients(int row, int num_keys) {
    const float* const weights = weights_.get() + row * step_;
    float* const gradients = gradients_.get() + row * step_;
    const float mean = dot(weights, gradients, num_keys) + dot(chained(weights_, row), chained(gradients_, row), num_chained_);
    for (int i = 0; i < num_keys; i++) gradients[i] = scale_ * weights[i] * (gradients[i] - mean);
    for (int i = num_rows_; i < step_; i++) gradients[i] = scale_ * weights[i] * (gradients[i] - mean);
  }

  const int num_rows_, size_, num_chained_;
  const float scale_;
  const int64_t step_;  // of a block's rows: weights of keys, and at the end those of chained ones
  const Floats packed_a_, packed_b_;
  const Floats weights_, gradients_;  // [kRowBlock, step]
  TeamState alone_;
};

}  // namespace mtplx
