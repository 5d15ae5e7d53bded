// The decoder layers of the common Llama and Qwen shape, one after the other, for the rows of many sequences.
//
// A layer is h += o(attention(rope(q, k), v of norm(h))), then h += down(silu(gate) · up of norm(h)). Every step is one of
// the other files' functions; this one knows their order, and which results must be there before a step begins.
#pragma once

#include <vector>

#include "activation.h"
#include "attention.h"
#include "linear.h"
#include "norm.h"
#include "rope.h"

namespace mtplx {

struct Projection {
  QuantizedWeights weights;
  const float* bias;  // [num outputs] or null
};

struct DecoderLayer {
  Projection query, key, value, output, gate, up, down;
  const float* input_norm;                 // [D]
  const float* post_norm;                  // [D]
  const float *query_norm, *key_norm;      // [head size] or null
};

struct DecoderShape {
  int hidden, intermediate;
  AttentionShape attention;
  RopeShape rope;
  float eps;

  int query_size() const { return attention.num_heads * attention.key_size; }
  int key_size() const { return attention.num_kv_heads * attention.key_size; }
  int heads_size() const { return query_size() + 2 * key_size(); }
};

using Segments = std::vector<AttentionSegment<float>>;

// What a pass over T rows needs of memory, shared by its team.
class DecoderPass {
 public:
  DecoderPass(const DecoderShape& shape, const float* inverse_frequencies, int group, const Segments& segments,
              int num_rows, int team_size, float* hidden)
      : shape_(shape), num_rows_(num_rows), plan_(shape.attention, segments), hidden_(hidden),
        heads_(make_floats(int64_t(num_rows) * shape.heads_size())),
        attended_(make_floats(int64_t(num_rows) * shape.query_size())),
        gated_(make_floats(int64_t(num_rows) * 2 * shape.intermediate)),
        angles_(make_floats(int64_t(num_rows) * 2 * shape.rope.half)),
        scratch_(make_floats(plan_.num_floats(team_size))),
        of_hidden_(num_rows, shape.hidden, group), of_attended_(num_rows, shape.query_size(), group),
        of_gated_(num_rows, shape.intermediate, group) {
    for (const auto& segment : segments)
      for (int row = segment.start; row < segment.stop; row++) {
        float* cosines = angles_.get() + int64_t(row) * 2 * shape.rope.half;
        rope_table(float(segment.position + row - segment.start), inverse_frequencies, shape.rope.half, cosines,
                   cosines + shape.rope.half);
      }
  }

  // This member's part of a layer, whose keys and values go into `segments`. The team is together again at the end.
  void run(const DecoderLayer& layer, const Segments& segments, const Team& team) {
    pack_normed(layer.input_norm, team);
    project(layer.query, of_hidden_, heads_.get(), shape_.heads_size(), team);
    project(layer.key, of_hidden_, heads_.get() + shape_.query_size(), shape_.heads_size(), team);
    project(layer.value, of_hidden_, heads_.get() + shape_.query_size() + shape_.key_size(), shape_.heads_size(), team);
    team.barrier();
    rotate(layer, team);
    team.barrier();
    attend(segments, team);
    of_attended_.pack(team.part(of_attended_.num_groups), [&](int row, int k, float* values) {
      std::copy_n(attended_.get() + int64_t(row) * shape_.query_size() + k, of_attended_.group, values);
    });
    team.barrier();
    add_to_hidden(layer.output, of_attended_, team);
    team.barrier();

    pack_normed(layer.post_norm, team);
    project(layer.gate, of_hidden_, gated_.get(), 2 * shape_.intermediate, team);
    project(layer.up, of_hidden_, gated_.get() + shape_.intermediate, 2 * shape_.intermediate, team);
    team.barrier();
    of_gated_.pack(team.part(of_gated_.num_groups), [&](int row, int k, float* values) {
      const float* gate = gated_.get() + int64_t(row) * 2 * shape_.intermediate + k;
      activate_row<Silu>(gate, gate + shape_.intermediate, of_gated_.group, values);
    });
    team.barrier();
    add_to_hidden(layer.down, of_gated_, team);
    team.barrier();
  }

 private:
  // Every member takes the norm of every row, which is cheaper than waiting for another to do it.
  void pack_normed(const float* weight, const Team& team) {
    std::vector<float> scales(num_rows_);
    for (int row = 0; row < num_rows_; row++) scales[row] = rms_scale(hidden_row(row), shape_.hidden, shape_.eps);
    of_hidden_.pack(team.part(of_hidden_.num_groups), [&](int row, int k, float* values) {
      for (int i = 0; i < of_hidden_.group; i += kLanes)
        store(values + i, load<vfloat>(hidden_row(row) + k + i) * scales[row] * load<vfloat>(weight + k + i));
    });
    team.barrier();
  }

  void project(const Projection& projection, const PackedRows& rows, float* out, int64_t stride, const Team& team) {
    multiply(projection.weights, rows, team, [&](int row, int first, const float* values, int count) {
      float* to = out + row * stride + first;
      if (projection.bias)
        for (int i = 0; i < count; i++) to[i] = values[i] + projection.bias[first + i];
      else
        std::copy_n(values, count, to);
    });
  }

  void add_to_hidden(const Projection& projection, const PackedRows& rows, const Team& team) {
    multiply(projection.weights, rows, team, [&](int row, int first, const float* values, int count) {
      float* to = hidden_row(row) + first;
      for (int i = 0; i < count; i++) to[i] += values[i];
    });
  }

  // Norm and rotate queries and keys, head by head, where they are.
  void rotate(const DecoderLayer& layer, const Team& team) {
    const AttentionShape& attention = shape_.attention;
    const int num_rotated = attention.num_heads + attention.num_kv_heads;
    const auto part = team.part(int64_t(num_rows_) * num_rotated);
    for (int64_t i = part.begin; i < part.end; i++) {
      const int64_t row = i / num_rotated, head = i % num_rotated;
      float* at = heads_.get() + row * shape_.heads_size() + head * attention.key_size;
      const float* norm = head < attention.num_heads ? layer.query_norm : layer.key_norm;
      if (norm) rms_norm_row(at, norm, attention.key_size, shape_.eps, at);
      const float* cosines = angles_.get() + row * 2 * shape_.rope.half;
      rope_head(at, cosines, cosines + shape_.rope.half, shape_.rope, at);
    }
  }

  void attend(const Segments& segments, const Team& team) {
    const int64_t stride = shape_.heads_size();
    const float* keys = heads_.get() + shape_.query_size();
    append<float>(shape_.attention, segments, {keys, stride}, {keys + shape_.key_size(), stride}, team);
    team.barrier();
    Attention<float>(plan_, segments, {heads_.get(), stride}, nullptr, {attended_.get(), shape_.query_size()},
                     scratch_.get(), team).run();
    team.barrier();
  }

  float* hidden_row(int row) const { return hidden_ + int64_t(row) * shape_.hidden; }

  const DecoderShape& shape_;
  const int num_rows_;
  const AttentionPlan plan_;
  float* const hidden_;                              // [T, D]
  Floats heads_, attended_, gated_, angles_, scratch_;
  PackedRows of_hidden_, of_attended_, of_gated_;
};

}  // namespace mtplx
