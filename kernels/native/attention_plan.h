// The units of work of attention over a ragged batch, and where their intermediate results lie. Knows shapes and
// positions; computes nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention_tiles.h"

namespace mtplx {

struct AttentionShape {
  int num_heads, num_kv_heads;
  int key_size, value_size;  // of a head
  float scale;               // of the queries
  float softcap;             // score to softcap · tanh(score / softcap); 0: none
  int window;                // 0: none

  int group() const { return num_heads / num_kv_heads; }
  int64_t first_visible(int64_t position) const {
    return window == 0 ? 0 : std::max<int64_t>(0, position - window + 1);
  }
  bool operator==(const AttentionShape&) const = default;
};

// Rows start … stop of the batch, at `position` and after in their sequence. Its buffers are keys
// [KV heads, capacity, D] and values [KV heads, capacity, D'], row 0 at position `first`.
template <typename Element>
struct AttentionSegment {
  Element* keys;
  Element* values;
  int64_t capacity, first, position;
  int start, stop;
};

// Rows of heads: [T][num heads][size], rows a stride apart.
template <typename Number>
struct HeadRows {
  Number* data;
  int64_t stride;
};

// Who does what, and where intermediate results lie. The same for all layers of one shape.
class AttentionPlan {
 public:
  template <typename Element>
  AttentionPlan(const AttentionShape& shape, const std::vector<AttentionSegment<Element>>& segments) : shape(shape) {
    const int most = std::max(1, kUnitRows / shape.group());  // positions of a unit
    for (int index = 0; index < int(segments.size()); index++) {
      const int64_t rows = segments[index].stop - segments[index].start, parts = (rows + most - 1) / most;
      is_apart_ = is_apart_ && parts == 1;
      for (int head = 0; head < shape.num_kv_heads; head++)
        for (int64_t part = 0; part < parts; part++)
          add(index, head, int(rows * part / parts), int(rows * (part + 1) / parts), segments[index].position);
    }
    member_floats_ = padded(int64_t(shape.key_size) * (kKeyBlock + most_rows_) + most_rows_ + kLanes);
  }

  struct Unit {
    int segment, head;          // head of keys and values
    int row, num_rows;          // of the segment, and how many rows × query heads
    int64_t position;           // of `row`
    int64_t begin, end;         // positions seen by any row
    int64_t first_item;         // in the wave
    int64_t first_row;          // in the wave
    int64_t scratch;            // where its floats begin, in those of the wave

    int64_t first_chunk() const { return begin / kChunk; }
    int64_t num_chunks() const { return (end - 1) / kChunk - first_chunk() + 1; }
  };
  struct Wave {
    size_t begin, end;  // units
    int64_t num_items, num_rows, num_floats;
  };

  int64_t num_floats(int team_size) const { return team_size * member_floats_ + wave_floats_; }
  int64_t work() const { return work_; }  // multiply-adds
  const std::vector<Unit>& units() const { return units_; }
  const std::vector<Wave>& waves() const { return waves_; }
  int64_t member_floats() const { return member_floats_; }

  // Whether each unit is all that a segment has of its head, and needs nothing of others: no member waits for another.
  bool is_apart() const { return is_apart_; }

  // Floats of a unit: greatest scores [chunks][rows] and sums [chunks][rows], rows filled up to whole vectors; then for
  // each chunk scores [rows][kChunk] and outputs [rows][value size], the value size filled up.
  static int64_t padded(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }
  int64_t output_stride() const { return padded(shape.value_size); }
  int64_t item_floats(const Unit& unit) const { return unit.num_rows * (kChunk + output_stride()); }

  const AttentionShape shape;

 private:
  static constexpr int kUnitRows = 64;
  static constexpr int64_t kWaveFloats = 1 << 19;

  void add(int segment, int head, int begin, int end, int64_t segment_position) {
    const int64_t position = segment_position + begin;
    Unit unit{segment, head, begin, (end - begin) * shape.group(), position, shape.first_visible(position),
              segment_position + end, 0, 0, 0};
    const int64_t floats = unit.num_chunks() * (2 * padded(unit.num_rows) + item_floats(unit));
    if (waves_.empty() || waves_.back().num_floats + floats > kWaveFloats)
      waves_.push_back({units_.size(), units_.size(), 0, 0, 0});
    Wave& wave = waves_.back();
    unit.first_item = wave.num_items, unit.first_row = wave.num_rows, unit.scratch = wave.num_floats;
    wave.end++, wave.num_items += unit.num_chunks(), wave.num_rows += unit.num_rows, wave.num_floats += floats;
    wave_floats_ = std::max(wave_floats_, wave.num_floats);
    most_rows_ = std::max(most_rows_, unit.num_rows);
    work_ += unit.num_rows * (unit.end - unit.begin) * (shape.key_size + shape.value_size);
    is_apart_ = is_apart_ && waves_.size() == 1 && unit.num_chunks() == 1;
    units_.push_back(unit);
  }

  std::vector<Unit> units_;
  std::vector<Wave> waves_;
  int64_t wave_floats_ = 0, member_floats_ = 0, work_ = 0;
  int most_rows_ = 0;
  bool is_apart_ = true;
};

}  // namespace mtplx
