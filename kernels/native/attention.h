// Attention of a ragged batch: the rows of many sequences, each over its own keys and values. Knows buffers and
// positions, and shares the work among a team; knows no MLX.
//
// A row at position p sees the keys max(0, p - window + 1) … p. Its softmax is exact: the greatest of all scores is
// found first. Exponentials, and their products with values, are summed over each chunk of kChunk positions, chunks
// counted from position 0, and the sums of chunks are added in order. So a row's bits depend on its position and the
// window, not on other rows, on where the buffer begins, or on how the work is shared.
//
// Work comes in units: some rows of one sequence, with all query heads that share a key-value head. Units go in waves
// whose scores fit a cache, and each wave in three steps with barriers between: scores of every (unit, chunk); products
// with values of every (unit, chunk); and the sum over chunks of every row.
#pragma once

#include "attention_plan.h"
#include "attention_tiles.h"
#include "parallel.h"
#include "tail.h"

namespace mtplx {

// Stores one head of a row's keys or values: `count` numbers.
template <typename Element>
void store_head(const float* from, int count, Element* to) {
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) write(load<vfloat>(from + i), to + i);
  for (; i < count; i++) to[i] = Element(from[i]);
}

// Stores new keys and values at their rows' positions. To be followed by a barrier.
template <typename Element>
void append(const AttentionShape& shape, const std::vector<AttentionSegment<Element>>& segments,
            HeadRows<const float> keys, HeadRows<const float> values, const Team& team) {
  for (const auto& segment : segments) {
    const auto part = team.part(int64_t(segment.stop - segment.start) * shape.num_kv_heads);
    for (int64_t i = part.begin; i < part.end; i++) {
      const int64_t head = i % shape.num_kv_heads, row = i / shape.num_kv_heads;
      const int64_t at = head * segment.capacity + segment.position + row - segment.first;
      store_head(keys.data + (segment.start + row) * keys.stride + head * shape.key_size, shape.key_size,
                 segment.keys + at * shape.key_size);
      store_head(values.data + (segment.start + row) * values.stride + head * shape.value_size, shape.value_size,
                 segment.values + at * shape.value_size);
    }
  }
}

// One member's part of the attention. All members share the plan and the scratch memory, plan.num_floats(team size). Keys
// of segments may be in tiles, as key_tiles.h has them; else they lie as values do.
template <typename Element, bool AreKeysInTiles = false>
class Attention {
 public:
  using Unit = AttentionPlan::Unit;
  using Wave = AttentionPlan::Wave;
  using TileElement = std::conditional_t<AreKeysInTiles, Element, float>;

  // queries [T][H][D] to out [T][H][D']; sinks [H] or null.
  Attention(const AttentionPlan& plan, const std::vector<AttentionSegment<Element>>& segments,
            HeadRows<const float> queries, const float* sinks, HeadRows<float> out, float* scratch, const Team& team)
      : plan_(plan), shape_(plan.shape), segments_(segments), queries_(queries), sinks_(sinks), out_(out), team_(team),
        wave_(scratch + team.size * plan.member_floats()), keys_(scratch + team.index * plan.member_floats()),
        packed_(keys_ + int64_t(shape_.key_size) * kKeyBlock) {}

  // The whole of a unit, of a plan whose units are apart.
  void run(const Unit& unit) {
    score(unit, unit.first_chunk());
    weigh(unit, unit.first_chunk());
    for (int row = 0; row < unit.num_rows; row++) finish(unit, row);
  }

  void run() {
    for (const Wave& wave : plan_.waves()) {
      if (&wave != &plan_.waves().front()) team_.barrier();
      share_items(wave, [&](const Unit& unit, int64_t chunk) { score(unit, chunk); });
      team_.barrier();
      share_items(wave, [&](const Unit& unit, int64_t chunk) { weigh(unit, chunk); });
      team_.barrier();
      share_rows(wave, [&](const Unit& unit, int row) { finish(unit, row); });
    }
  }

 private:
  // Scores of a unit's rows with the keys of a chunk, and the greatest of each row.
  void score(const Unit& unit, int64_t chunk) {
    const Visible seen = visible(unit.begin, unit.end, chunk);
    float* const scores = item_scores(unit, chunk);
    pack_queries(unit);
    for (int block = 0; block < kChunk; block += kKeyBlock) {
      const Visible keys = overlap(seen, {block, block + kKeyBlock});
      if (!keys.any()) continue;
      const auto* const tiles = key_tiles(unit, chunk * kChunk + block, keys.begin - block, keys.end - block);
      const bool goes_on = AreKeysInTiles && chunk * kChunk + block + kKeyBlock < unit.end;
      for_each_tile(unit, [&](int first, auto rows) {
        const Visible any{visible(unit, first, chunk).begin, visible(unit, first + rows - 1, chunk).end};
        const Visible tile = overlap(any, keys);
        if (!tile.any()) return;
        const int from = tile.begin / kLanes * kLanes, to = (tile.end + kLanes - 1) / kLanes * kLanes;
        split_vectors<tile_vectors(rows)>((to - from) / kRegisterLanes, [&](int vector, auto vectors) {
          const int key = from + vector * kRegisterLanes;
          const auto run = goes_on && first == 0 ? score_tile<rows, vectors, AreKeysInTiles, TileElement>
                                                 : score_tile<rows, vectors, false, TileElement>;
          run(packed_ + int64_t(first) * shape_.key_size, tiles + key_place(key - block, shape_.key_size),
              shape_.key_size, scores + first * kChunk + key);
        });
      });
    }
    float* const greatest = greatest_scores(unit, chunk);
    for (int i = 0; i < unit.num_rows; i++) {
      const Visible keys = visible(unit, i, chunk);
      greatest[i] = keys.any() ? finish_scores(scores + i * kChunk, keys, shape_.softcap) : kNoScore;
    }
  }

  // Tiles of the block of keys from a position on, of which [begin, end) are asked for.
  const TileElement* key_tiles(const Unit& unit, int64_t position, int begin, int end) const {
    const auto& segment = segments_[unit.segment];
    const int size = shape_.key_size;
    if constexpr (AreKeysInTiles) {
      return segment.keys + unit.head * segment.capacity * size + key_place(position, size);
    } else {
      turn_keys(row_of(unit, segment.keys, size, position + begin), begin, end, size, keys_);
      return keys_;
    }
  }

  // Exponentials of a chunk's scores, their sums, and their products with the chunk's values.
  void weigh(const Unit& unit, int64_t chunk) {
    const auto& segment = segments_[unit.segment];
    const int stride = int(plan_.output_stride());
    float* const weights = item_scores(unit, chunk);
    float* const outputs = weights + unit.num_rows * kChunk;
    float* const greatest = packed_;
    find_greatest(unit, greatest);
    float* const sums = score_sums(unit, chunk);
    for (int i = 0; i < unit.num_rows; i++) {
      const Visible keys = visible(unit, i, chunk);
      if (keys.any()) sums[i] = exponentiate(weights + i * kChunk, keys, greatest[i]);
    }
    std::fill(outputs, outputs + int64_t(unit.num_rows) * stride, 0.0f);
    const auto add = [&](int first, auto rows, int begin, int end) {
      if (begin < end)
        weigh_columns<rows>(weights + first * kChunk + begin,
                            row_of(unit, segment.values, shape_.value_size, chunk * kChunk + begin), end - begin,
                            shape_.value_size, outputs + int64_t(first) * stride, stride);
    };
    for_each_tile(unit, [&](int first, auto rows) {
      // Keys that all rows see are read once for all; those before and after are added row by row, in the same order.
      Visible common{visible(unit, first + rows - 1, chunk).begin, visible(unit, first, chunk).end};
      if (!common.any()) common.end = common.begin;
      constexpr std::integral_constant<int, 1> one;
      for (int i = first; i < first + rows; i++) {
        const Visible keys = visible(unit, i, chunk);
        add(i, one, keys.begin, std::min(keys.end, common.begin));
      }
      add(first, rows, common.begin, common.end);
      for (int i = first; i < first + rows; i++) {
        const Visible keys = visible(unit, i, chunk);
        add(i, one, std::max(keys.begin, common.end), keys.end);
      }
    });
  }

  // A row's output: the sum over its chunks.
  void finish(const Unit& unit, int i) {
    const int64_t position = unit.position + i / shape_.group();
    const int64_t first = shape_.first_visible(position) / kChunk, last = position / kChunk;
    const int head = unit.head * shape_.group() + i % shape_.group();
    float total = 0;
    for (int64_t chunk = first; chunk <= last; chunk++) total += score_sums(unit, chunk)[i];
    if (sinks_) {
      float greatest = sinks_[head];
      for (int64_t chunk = first; chunk <= last; chunk++)
        greatest = std::max(greatest, greatest_scores(unit, chunk)[i]);
      total += exponential(fill_register(sinks_[head] - greatest))[0];
    }
    const auto& segment = segments_[unit.segment];
    float* const to = out_.data + (segment.start + unit.row + i / shape_.group()) * out_.stride +
                      int64_t(head) * shape_.value_size;
    for_each_register(shape_.value_size, [&](int at, int count) {
      vregister sum = {};
      for (int64_t chunk = first; chunk <= last; chunk++)
        sum += load<vregister>(item_scores(unit, chunk) + unit.num_rows * kChunk + i * plan_.output_stride() + at);
      store_first(to + at, sum / total, count);
    });
  }

  // Queries, times the scale, as [size][rows of the tile] for each tile.
  void pack_queries(const Unit& unit) {
    const int size = shape_.key_size, group = shape_.group();
    for_each_tile(unit, [&](int first, auto rows) {
      float* const to = packed_ + int64_t(first) * size;
      for (int i = 0; i < rows; i++) {
        const int64_t row = segments_[unit.segment].start + unit.row + (first + i) / group;
        const int64_t head = unit.head * group + (first + i) % group;
        const float* const from = queries_.data + row * queries_.stride + head * size;
        for (int d = 0; d < size; d++) to[d * rows + i] = from[d] * shape_.scale;
      }
    });
  }

  // Over all keys that each row sees, and its sink.
  void find_greatest(const Unit& unit, float* greatest) {
    for (int i = 0; i < unit.num_rows; i++)
      greatest[i] = sinks_ ? sinks_[unit.head * shape_.group() + i % shape_.group()] : kNoScore;
    for (int64_t chunk = unit.first_chunk(); chunk < unit.first_chunk() + unit.num_chunks(); chunk++) {
      const float* const other = greatest_scores(unit, chunk);
      for (int i = 0; i < unit.num_rows; i++) greatest[i] = other[i] > greatest[i] ? other[i] : greatest[i];
    }
  }

  template <typename Visit>
  void share_items(const Wave& wave, Visit visit) {
    team_.share(wave.num_items, [&](const Team::Range& items) {
      for (size_t u = wave.begin; u < wave.end; u++) {
        const Unit& unit = plan_.units()[u];
        const int64_t first = std::max(items.begin - unit.first_item, int64_t(0));
        const int64_t end = std::min(items.end - unit.first_item, unit.num_chunks());
        for (int64_t i = first; i < end; i++) visit(unit, unit.first_chunk() + i);
      }
    });
  }

  template <typename Visit>
  void share_rows(const Wave& wave, Visit visit) {
    constexpr int kRowsAtATime = 16;
    team_.share(wave.num_rows, kRowsAtATime, kRowsAtATime, [&](const Team::Range& rows) {
      for (size_t u = wave.begin; u < wave.end; u++) {
        const Unit& unit = plan_.units()[u];
        const int64_t first = std::max(rows.begin - unit.first_row, int64_t(0));
        const int64_t end = std::min<int64_t>(rows.end - unit.first_row, unit.num_rows);
        for (int64_t i = first; i < end; i++) visit(unit, int(i));
      }
    });
  }

  // Rows in as few tiles as possible, of about equal size.
  template <typename Visit>
  void for_each_tile(const Unit& unit, Visit visit) {
    const int count = (unit.num_rows + kTileRows - 1) / kTileRows;
    for (int tile = 0; tile < count; tile++) {
      const int first = unit.num_rows * tile / count, next = unit.num_rows * (tile + 1) / count;
      with_constant<kTileRows>(next - first, [&](auto rows) { visit(first, rows); });
    }
  }

  static Visible overlap(const Visible& a, const Visible& b) {
    return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
  }

  static Visible visible(int64_t begin, int64_t end, int64_t chunk) {
    return {int(std::clamp<int64_t>(begin - chunk * kChunk, 0, kChunk)),
            int(std::clamp<int64_t>(end - chunk * kChunk, 0, kChunk))};
  }
  Visible visible(const Unit& unit, int i, int64_t chunk) const {
    const int64_t position = unit.position + i / shape_.group();
    return visible(shape_.first_visible(position), position + 1, chunk);
  }

  const Element* row_of(const Unit& unit, const Element* buffer, int size, int64_t position) const {
    const auto& segment = segments_[unit.segment];
    return buffer + (unit.head * segment.capacity + position - segment.first) * size;
  }

  // Where a unit keeps its results, see AttentionPlan.
  float* greatest_scores(const Unit& unit, int64_t chunk) const {
    return wave_ + unit.scratch + (chunk - unit.first_chunk()) * plan_.padded(unit.num_rows);
  }
  float* score_sums(const Unit& unit, int64_t chunk) const {
    return greatest_scores(unit, chunk + unit.num_chunks());
  }
  float* item_scores(const Unit& unit, int64_t chunk) const {
    return greatest_scores(unit, unit.first_chunk() + 2 * unit.num_chunks()) +
           (chunk - unit.first_chunk()) * plan_.item_floats(unit);
  }

  static constexpr float kNoScore = -std::numeric_limits<float>::infinity();

  const AttentionPlan& plan_;
  const AttentionShape& shape_;
  const std::vector<AttentionSegment<Element>>& segments_;
  const HeadRows<const float> queries_;
  const float* const sinks_;
  const HeadRows<float> out_;
  const Team& team_;
  float* const wave_;    // scratch of all members
  float* const keys_;    // scratch of this one: tiles of kKeyBlock keys
  float* const packed_;  // queries [rows][key size] or greatest scores [rows]
};

}  // namespace mtplx
