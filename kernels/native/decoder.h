// A decoder of the common Llama and Qwen shape, from tokens to logits, for the rows of many sequences.
//
// A layer is h += o(attention(rope(q, k), v of norm(h))), then h += down(silu(gate) · up of norm(h)). Every step is one of
// the other files' functions; this one knows their order, and which results must be there before a step begins.
#pragma once

#include <optional>
#include <vector>

#include "activation.h"
#include "attention.h"
#include "embedding.h"
#include "linear.h"
#include "norm.h"
#include "rope.h"

namespace mtplx {

struct DecoderLayer {
  Projection query, key, value, output, gate, up, down;
  const float* input_norm;                 // [D]
  const float* post_norm;                  // [D]
  const float *query_norm, *key_norm;      // [head size] or null
};

// How rows enter that stand for pairs: a projection of the embedded token and of a hidden state, after their norms.
struct DecoderEntrance {
  const float *embedding_norm, *hidden_norm;  // [D]
  Projection projection;                      // [D, 2 D], the embedding's half first
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

struct DecoderWeights {
  std::optional<EmbeddingTable> embedding;  // none: rows come embedded
  std::optional<DecoderEntrance> entrance;  // none: rows enter as they are
  std::vector<DecoderLayer> layers;
  const float* final_norm;                  // [D]
  std::optional<Projection> head;           // none: rows go out as they are after the norm
  const float* inverse_frequencies;         // [half]
  bool equal_bits;                          // of all products of the layers
};

// Of rows that are kept as so many of these elements.
template <typename Element>
using Segments = std::vector<AttentionSegment<Element>>;

// Rows made ready for products: by each member for itself where they are few, which is cheaper than to wait for others.
class TeamRows {
 public:
  TeamRows(int num_rows, int num_inputs, int group, RowForm form, int team_size) {
    constexpr int64_t kFewValues = 1 << 11;
    const bool few = int64_t(num_rows) * num_inputs <= kFewValues;
    for (int member = 0; member < (few ? team_size : 1); member++) copies_.emplace_back(num_rows, num_inputs, group, form);
  }

  // All rows, as this member may read them now; `fill` as PackedRows has it.
  template <typename Fill>
  const PackedRows& pack(const Team& team, Fill fill) {
    if (copies_.size() > 1) {
      PackedRows& own = copies_[team.index];
      own.pack({0, own.num_groups}, fill);
      return own;
    }
    copies_[0].pack(team.part(copies_[0].num_groups), fill);
    team.barrier();
    return copies_[0];
  }

  int group() const { return copies_[0].group; }

 private:
  std::vector<PackedRows> copies_;
};

// What a pass over T rows needs of memory, shared by its team. `Element` is what keys and values are kept as.
template <typename Element>
class DecoderPass {
 public:
  // `wanted` are the rows whose results are asked for; `num_bytes` are those of inputs, as RowForm has them.
  DecoderPass(const DecoderShape& shape, const DecoderWeights& weights, const Segments<Element>& segments, int num_rows,
              const std::vector<int>& wanted, int num_bytes, int team_size)
      : shape_(shape), weights_(weights), num_rows_(num_rows), wanted_(wanted), plan_(shape.attention, segments),
        hidden_(make_floats(int64_t(num_rows) * shape.hidden)),
        heads_(make_floats(int64_t(num_rows) * shape.heads_size())),
        attended_(make_floats(int64_t(num_rows) * shape.query_size())),
        gated_(make_floats(int64_t(num_rows) * 2 * shape.intermediate)),
        angles_(make_floats(int64_t(num_rows) * 2 * shape.rope.half)),
        scratch_(make_floats(plan_.num_floats(team_size))),
        form_{num_bytes, weights.equal_bits ? weights.layers[0].query.weights.bits : 0},
        of_hidden_(num_rows, shape.hidden, group(), form_, team_size),
        of_attended_(num_rows, shape.query_size(), group(), form_, team_size),
        of_gated_(num_rows, shape.intermediate, group(), form_, team_size),
        of_wanted_(int(wanted.size()), shape.hidden, weights.head ? weights.head->weights.group : group(),
                   weights.head ? RowForm{num_bytes, weights.head->weights.bits} : form_, team_size) {
    if (weights.entrance) {
      const auto& product = weights.entrance->projection.weights;
      of_pairs_.emplace(num_rows, 2 * shape.hidden, product.group, RowForm{num_bytes, product.bits}, team_size);
    }
    for (const auto& segment : segments)
      for (int row = segment.start; row < segment.stop; row++) {
        float* cosines = angles_.get() + int64_t(row) * 2 * shape.rope.half;
        rope_table(float(segment.position + row - segment.start), weights.inverse_frequencies, shape.rope.half, cosines,
                   cosines + shape.rope.half);
      }
  }

  // The rows by their tokens [T]. The team is together again at the end, here and below.
  void embed_rows(const int32_t* tokens, const Team& team) {
    const auto part = team.part(num_rows_);
    for (int64_t row = part.begin; row < part.end; row++) embed(*weights_.embedding, tokens[row], hidden_row(row));
    team.barrier();
  }

  // The rows by their tokens [T] and hidden states [T, D], through the entrance.
  void take_pairs(const int32_t* tokens, const float* states, const Team& team) {
    const DecoderEntrance& entrance = *weights_.entrance;
    const int hidden = shape_.hidden;
    embed_rows(tokens, team);
    std::vector<float> scales(2 * num_rows_);
    for (int row = 0; row < num_rows_; row++) {
      scales[2 * row] = rms_scale(hidden_row(row), hidden, shape_.eps);
      scales[2 * row + 1] = rms_scale(states + int64_t(row) * hidden, hidden, shape_.eps);
    }
    const PackedRows& pairs = of_pairs_->pack(team, [&](int row, int k, float* values) {
      const bool is_state = k >= hidden;
      const int at = is_state ? k - hidden : k;
      const float* from = (is_state ? states + int64_t(row) * hidden : hidden_row(row)) + at;
      const float* weight = (is_state ? entrance.hidden_norm : entrance.embedding_norm) + at;
      for (int i = 0; i < of_pairs_->group(); i += kRegisterLanes)
        store(values + i, load<vregister>(from + i) * scales[2 * row + is_state] * load<vregister>(weight + i));
    });
    team.barrier();  // before embedded rows make way
    project(entrance.projection, pairs, hidden_.get(), hidden, team, &weights_.layers[0].query);
    team.barrier();
  }

  // The rows as they are, [T, D].
  void take_rows(const float* rows, const Team& team) {
    const auto part = team.part(int64_t(num_rows_) * shape_.hidden);
    std::copy(rows + part.begin, rows + part.end, hidden_.get() + part.begin);
    team.barrier();
  }

  // This member's part of a layer, whose keys and values go into `segments`.
  void run(const DecoderLayer& layer, const Segments<Element>& segments, const Team& team) {
    const bool is_last = &layer == &weights_.layers.back();
    const Projection* const after = !is_last ? &(&layer)[1].query : weights_.head ? &*weights_.head : nullptr;
    const PackedRows& before = pack_normed(layer.input_norm, team);
    float* const heads = heads_.get();
    const int heads_size = shape_.heads_size();
    project(layer.query, before, heads, heads_size, team, &layer.key);
    project(layer.key, before, heads + shape_.query_size(), heads_size, team, &layer.value);
    project(layer.value, before, heads + shape_.query_size() + shape_.key_size(), heads_size, team, &layer.output);
    team.barrier();
    attend(layer, segments, team);
    team.barrier();
    const PackedRows& attended = of_attended_.pack(team, [&](int row, int k, float* values) {
      std::copy_n(attended_.get() + int64_t(row) * shape_.query_size() + k, group(), values);
    });
    add_to_hidden(layer.output, attended, team, &layer.gate);
    team.barrier();

    const PackedRows& between = pack_normed(layer.post_norm, team);
    project(layer.gate, between, gated_.get(), 2 * shape_.intermediate, team, &layer.up);
    project(layer.up, between, gated_.get() + shape_.intermediate, 2 * shape_.intermediate, team, &layer.down);
    team.barrier();
    const PackedRows& gated = of_gated_.pack(team, [&](int row, int k, float* values) {
      const float* gate = gated_.get() + int64_t(row) * 2 * shape_.intermediate + k;
      activate_row<Silu>(gate, gate + shape_.intermediate, group(), values);
    });
    add_to_hidden(layer.down, gated, team, after);
    team.barrier();
  }

  // All rows after the final norm, which stay as they are here.
  void norm_all(float* out, const Team& team) const {
    const auto part = team.part(num_rows_);
    for (int64_t row = part.begin; row < part.end; row++)
      rms_norm_row(hidden_row(row), weights_.final_norm, shape_.hidden, shape_.eps, out + row * shape_.hidden);
  }

  // Logits of the wanted rows, or the rows after the final norm where there is no head.
  void finish(float* out, const Team& team) {
    const int hidden = shape_.hidden, num_wanted = int(wanted_.size());
    if (!weights_.head) {
      const auto part = team.part(num_wanted);
      for (int64_t i = part.begin; i < part.end; i++)
        rms_norm_row(hidden_row(wanted_[i]), weights_.final_norm, hidden, shape_.eps, out + i * hidden);
      return;
    }
    const auto row_of = [&](int i) { return hidden_row(wanted_[i]); };
    const PackedRows& normed = pack_normed(of_wanted_, num_wanted, row_of, weights_.final_norm, team);
    project(*weights_.head, normed, out, weights_.head->weights.num_outputs, team, nullptr);
  }

 private:
  static const QuantizedWeights* weights_of(const Projection* projection) {
    return projection ? &projection->weights : nullptr;
  }

  int group() const { return weights_.layers[0].query.weights.group; }

  const PackedRows& pack_normed(const float* weight, const Team& team) {
    return pack_normed(of_hidden_, num_rows_, [&](int row) { return hidden_row(row); }, weight, team);
  }

  // Every member takes the scale of every row, which is cheaper than to wait for another to do it.
  template <typename RowOf>
  const PackedRows& pack_normed(TeamRows& rows, int num_rows, RowOf row_of, const float* weight, const Team& team) {
    std::vector<float> scales(num_rows);
    for (int row = 0; row < num_rows; row++) scales[row] = rms_scale(row_of(row), shape_.hidden, shape_.eps);
    return rows.pack(team, [&](int row, int k, float* values) {
      for (int i = 0; i < rows.group(); i += kRegisterLanes)
        store(values + i, load<vregister>(row_of(row) + k + i) * scales[row] * load<vregister>(weight + k + i));
    });
  }

  // `following` is the product after this one, or null.
  void project(const Projection& projection, const PackedRows& rows, float* out, int64_t stride, const Team& team,
               const Projection* following) {
    const auto put = [&](int row, int first, const float* values, int count) {
      float* to = out + row * stride + first;
      if (projection.bias)
        for (int i = 0; i < count; i++) to[i] = values[i] + projection.bias[first + i];
      else
        std::copy_n(values, count, to);
    };
    multiply(projection.weights, rows, team, weights_of(following), put);
  }

  void add_to_hidden(const Projection& projection, const PackedRows& rows, const Team& team,
                     const Projection* following) {
    const auto add = [&](int row, int first, const float* values, int count) {
      float* to = hidden_row(row) + first;
      for (int i = 0; i < count; i++) to[i] += values[i];
    };
    multiply(projection.weights, rows, team, weights_of(following), add);
  }

  void attend(const DecoderLayer& layer, const Segments<Element>& segments, const Team& team) {
    const int num_kv_heads = shape_.attention.num_kv_heads;
    Attention<Element, true> attention(plan_, segments, {heads_.get(), shape_.heads_size()}, nullptr,
                               {attended_.get(), shape_.query_size()}, scratch_.get(), team);
    if (plan_.is_apart()) {
      team.share(plan_.units().size(), [&](const Team::Range& units) {
        for (int64_t i = units.begin; i < units.end; i++) {
          const AttentionPlan::Unit& unit = plan_.units()[i];
          const auto& segment = segments[unit.segment];
          for (int row = segment.start; row < segment.stop; row++) prepare(layer, segment, row, unit.head);
          attention.run(unit);
        }
      });
      return;
    }
    for (const auto& segment : segments) {
      const int64_t end = segment.position + segment.stop - segment.start;
      const int64_t first_tile = segment.position / kTileKeys, last_tile = (end - 1) / kTileKeys;
      const auto part = team.part((last_tile - first_tile + 1) * num_kv_heads);
      for (int64_t i = part.begin; i < part.end; i++) {
        const int64_t from = (first_tile + i / num_kv_heads) * kTileKeys;
        for (int64_t at = std::max(from, segment.position); at < std::min(from + kTileKeys, end); at++)
          prepare(layer, segment, segment.start + int(at - segment.position), int(i % num_kv_heads));
      }
    }
    team.barrier();
    attention.run();
  }

  // Norm and rotate the queries and the key of a key-value head, where they are, and store key and value.
  void prepare(const DecoderLayer& layer, const AttentionSegment<Element>& segment, int row, int head) {
    const AttentionShape& attention = shape_.attention;
    const int size = attention.key_size;
    float* const queries = heads_.get() + int64_t(row) * shape_.heads_size();
    float* const key = queries + shape_.query_size() + head * size;
    for (int i = head * attention.group(); i < (head + 1) * attention.group(); i++)
      rotate(queries + i * size, layer.query_norm, row);
    rotate(key, layer.key_norm, row);
    const int64_t at = segment.position + row - segment.start, slab = head * segment.capacity * size;
    store_key(key, size, at, segment.keys + slab);
    store_head(key + shape_.key_size(), size, segment.values + slab + at * size);
  }

  void rotate(float* head, const float* norm, int row) {
    if (norm) rms_norm_row(head, norm, shape_.attention.key_size, shape_.eps, head);
    const float* cosines = angles_.get() + int64_t(row) * 2 * shape_.rope.half;
    rope_head(head, cosines, cosines + shape_.rope.half, shape_.rope, head);
  }

  float* hidden_row(int64_t row) const { return hidden_.get() + row * shape_.hidden; }

  const DecoderShape& shape_;
  const DecoderWeights& weights_;
  const int num_rows_;
  const std::vector<int>& wanted_;
  const AttentionPlan plan_;
  Floats hidden_, heads_, attended_, gated_, angles_, scratch_;
  const RowForm form_;  // of rows in a layer, which may meet weights of several bits
  TeamRows of_hidden_, of_attended_, of_gated_, of_wanted_;
  std::optional<TeamRows> of_pairs_;
};

}  // namespace mtplx
