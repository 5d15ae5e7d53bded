// Attention over ragged rows as an MLX primitive.
#include "attention.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>

#include "array_rows.h"
#include "mlx/backend/cpu/encoder.h"
#include "rows.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

// Below this many multiply-adds a second thread costs more than it saves.
constexpr int64_t kWorthSharing = 1 << 17;

// Rows `start` up to `stop` of the batch, at `position` and after; row 0 of the buffers is at position `first`.
struct Rows {
  int64_t first, position;
  int start, stop;

  bool operator==(const Rows&) const = default;
};

// Floats that stay this thread's own from call to call: fresh memory would have to be mapped in page by page.
float* scratch(int64_t count) {
  thread_local Floats memory;
  thread_local int64_t capacity = 0;
  if (capacity < count) memory.reset(), memory = make_floats(count), capacity = count;
  return memory.get();
}

// Rows of heads [T, H, D] or [T, H, 1, D]. Where the heads of a row don't lie side by side they are gathered.
class Heads {
 public:
  explicit Heads(const mx::array& a) : rows_(a), num_rows_(a.shape(0)), num_heads_(a.shape(1)), size_(a.shape(-1)) {
    const bool side_by_side = (size_ == 1 || a.strides(-1) == 1) && (num_heads_ == 1 || a.strides(1) == size_);
    if (side_by_side) given_ = {a.data<float>(), a.strides(0)};
  }

  HeadRows<const float> get() {
    if (given_.data) return given_;
    const int64_t count = int64_t(num_rows_) * num_heads_;
    gathered_ = make_floats(count * size_ + 1);
    for (int64_t i = 0; i < count; i++) {
      float* const to = gathered_.get() + i * size_;
      if (const float* from = rows_.at(i, to); from != to) std::copy(from, from + size_, to);
    }
    return {gathered_.get(), int64_t(num_heads_) * size_};
  }

 private:
  ArrayRows rows_;
  int num_rows_, num_heads_, size_;
  HeadRows<const float> given_{};
  Floats gathered_;
};

// A buffer [1, KV heads, capacity, D], where it is to be and where it comes from if it must be copied there.
struct Buffer {
  mx::array place, source;

  bool moves() const { return place.buffer().ptr() != source.buffer().ptr() || place.offset() != source.offset(); }

  template <typename Element>
  Element* get() {
    Element* const to = place.data<Element>();
    if (!moves()) return to;
    const Element* const from = source.data<Element>();
    const auto& strides = source.strides();
    const int size = source.shape(3);
    Element* at = to;
    for (int64_t head = 0; head < source.shape(1); head++)
      for (int64_t row = 0; row < source.shape(2); row++, at += size) {
        const Element* const values = from + head * strides[1] + row * strides[2];
        if (strides[3] == 1)
          std::copy(values, values + size, at);
        else
          for (int i = 0; i < size; i++) at[i] = values[i * strides[3]];
      }
    return to;
  }
};

// Inputs: queries [T, H, D], keys and values of each segment's buffers, new keys and values [T, KV heads, D] where rows
// are appended, sinks [H] where there are some. Outputs: [T, H, D'], and the buffers where rows are appended.
class RaggedAttention : public CpuPrimitive {
 public:
  RaggedAttention(mx::Stream stream, AttentionShape shape, std::vector<Rows> rows, bool appends, bool has_sinks)
      : CpuPrimitive(stream), shape_(shape), rows_(std::move(rows)), appends_(appends), has_sinks_(has_sinks) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    // Each output holds the inputs, which therefore could never be donated. One hold on them is enough.
    for (auto& output : outputs)
      if (&output.inputs() != &inputs && !output.is_tracer()) output.inputs().clear();
    outputs[0].set_data(mx::allocator::malloc(outputs[0].nbytes()));

    auto& encoder = mx::cpu::get_command_encoder(stream());
    std::vector<Buffer> buffers;
    for (size_t i = 0; i < 2 * rows_.size(); i++) {
      const mx::array& buffer = inputs[1 + i];
      if (buffer.flags().row_contiguous && !appends_) {
        buffers.push_back({mx::array::unsafe_weak_copy(buffer), mx::array::unsafe_weak_copy(buffer)});
        continue;
      }
      mx::array place = appends_ ? outputs[1 + i] : mx::array(buffer.shape(), buffer.dtype(), nullptr, {});
      if (buffer.flags().row_contiguous && buffer.is_donatable())
        place.copy_shared_buffer(buffer);
      else
        place.set_data(mx::allocator::malloc(place.nbytes()));
      if (!appends_) encoder.add_temporary(place);
      buffers.push_back({mx::array::unsafe_weak_copy(place), mx::array::unsafe_weak_copy(buffer)});
    }
    for (const auto& input : inputs) encoder.set_input_array(input);
    for (auto& output : outputs) encoder.set_output_array(output);

    std::vector<mx::array> others{mx::array::unsafe_weak_copy(inputs[0])};
    for (size_t i = 1 + buffers.size(); i < inputs.size(); i++)
      others.push_back(mx::array::unsafe_weak_copy(inputs[i]));
    const auto run = inputs[1].dtype() == mx::float16 ? attend<float16> : attend<float>;
    encoder.dispatch([run, shape = shape_, rows = rows_, appends = appends_, has_sinks = has_sinks_, buffers, others,
                      out = outputs[0].data<float>()]() mutable {
      run(shape, rows, buffers, others, appends, has_sinks, out);
    });
  }

  bool is_equivalent(const Primitive& other) const override {
    const auto& attention = static_cast<const RaggedAttention&>(other);
    return shape_ == attention.shape_ && rows_ == attention.rows_ && appends_ == attention.appends_ &&
           has_sinks_ == attention.has_sinks_;
  }

  const char* name() const override { return "RaggedAttention"; }

 private:
  template <typename Element>
  static void attend(const AttentionShape& shape, const std::vector<Rows>& rows, std::vector<Buffer>& buffers,
                     const std::vector<mx::array>& others, bool appends, bool has_sinks, float* out) {
    std::vector<AttentionSegment<Element>> segments;
    for (size_t i = 0; i < rows.size(); i++)
      segments.push_back({buffers[2 * i].get<Element>(), buffers[2 * i + 1].get<Element>(),
                          buffers[2 * i].place.shape(2), rows[i].first, rows[i].position, rows[i].start, rows[i].stop});
    std::vector<Heads> heads;
    for (size_t i = 0; i < (appends ? 3 : 1); i++) heads.emplace_back(others[i]);
    HeadRows<const float> queries = heads[0].get(), keys{}, values{};
    if (appends) keys = heads[1].get(), values = heads[2].get();
    std::vector<float> sinks(has_sinks ? shape.num_heads : 0);
    for (size_t i = 0; i < sinks.size(); i++) sinks[i] = others.back().data<float>()[i * others.back().strides(0)];

    const AttentionPlan plan(shape, segments);
    const int team_size = plan.work() >= kWorthSharing ? num_threads() : 1;
    float* const memory = scratch(plan.num_floats(team_size));
    run_on_team(team_size, [&](const Team& team) {
      if (appends) {
        append(shape, segments, keys, values, team);
        team.barrier();
      }
      const HeadRows<float> to{out, int64_t(shape.num_heads) * shape.value_size};
      Attention<Element>(plan, segments, queries, has_sinks ? sinks.data() : nullptr, to, memory, team).run();
    });
  }

  AttentionShape shape_;
  std::vector<Rows> rows_;
  bool appends_, has_sinks_;
};

void check_buffers(const AttentionShape& shape, const Rows& rows, const mx::array& keys, const mx::array& values,
                   mx::Dtype dtype) {
  require(keys.ndim() == 4 && values.ndim() == 4 && keys.shape(0) == 1 && values.shape(0) == 1,
          "buffers must be [1, KV heads, capacity, D]");
  require(keys.shape(1) == shape.num_kv_heads && values.shape(1) == shape.num_kv_heads,
          "buffers must have the same number of heads");
  require(keys.shape(2) == values.shape(2), "keys and values must have the same capacity");
  require(keys.shape(3) == shape.key_size && values.shape(3) == shape.value_size,
          "buffers must have heads of one size");
  require(keys.dtype() == dtype && values.dtype() == dtype, "all buffers must have one type");
  const int64_t end = rows.position + rows.stop - rows.start;
  require(rows.position >= 0 && rows.start <= rows.stop, "positions and rows must not be negative");
  require(rows.first >= 0 && rows.first <= shape.first_visible(rows.position),
          "the buffer begins after keys that a row sees");
  require(end - rows.first <= keys.shape(2), "the buffer ends before the last row's position");
}

std::vector<mx::array> ragged_attention(const mx::array& queries, const std::vector<mx::array>& keys,
                                        const std::vector<mx::array>& values,
                                        const std::vector<std::tuple<int64_t, int64_t, int, int>>& segments,
                                        const std::optional<mx::array>& new_keys,
                                        const std::optional<mx::array>& new_values, float scale, int window,
                                        float softcap, const std::optional<mx::array>& sinks) {
  const auto is_heads = [&](const mx::array& a) {
    const bool has_axes = a.ndim() == 3 || (a.ndim() == 4 && a.shape(2) == 1);
    return has_axes && a.dtype() == mx::float32 && a.shape(0) == queries.shape(0);
  };
  require(is_heads(queries), "queries must be float32 [T, H, D] or [T, H, 1, D]");
  require(!segments.empty() && keys.size() == segments.size() && values.size() == segments.size(),
          "there must be keys and values for each segment");
  require(keys[0].ndim() == 4 && values[0].ndim() == 4, "buffers must be [1, KV heads, capacity, D]");
  require(window >= 0, "the window must not be negative");
  const mx::Dtype dtype = keys[0].dtype();
  require(dtype == mx::float32 || dtype == mx::float16, "buffers must be float32 or float16");
  const AttentionShape shape{queries.shape(1), keys[0].shape(1), queries.shape(-1), values[0].shape(3),
                             scale, softcap, window};
  require(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0, "heads must come in groups of one size");

  std::vector<Rows> rows;
  std::vector<mx::array> inputs{queries};
  int covered = 0;
  for (size_t i = 0; i < segments.size(); i++) {
    const auto& [first, position, start, stop] = segments[i];
    rows.push_back({first, position, start, stop});
    require(start == covered, "segments must follow one another");
    covered = stop;
    check_buffers(shape, rows.back(), keys[i], values[i], dtype);
    inputs.push_back(keys[i]);
    inputs.push_back(values[i]);
  }
  require(covered == queries.shape(0), "each row must be in a segment");
  mx::Shape out_shape = queries.shape();
  out_shape.back() = shape.value_size;
  std::vector<mx::Shape> shapes{out_shape};
  std::vector<mx::Dtype> dtypes{mx::float32};
  require(new_keys.has_value() == new_values.has_value(), "new keys come with new values");
  if (new_keys) {
    for (const auto& [a, size] : {std::pair(*new_keys, shape.key_size), std::pair(*new_values, shape.value_size)}) {
      require(is_heads(a) && a.shape(1) == shape.num_kv_heads && a.shape(-1) == size,
              "new keys and values must be float32 [T, KV heads, D] or [T, KV heads, 1, D]");
    }
    for (size_t i = 1; i < inputs.size(); i++) shapes.push_back(inputs[i].shape()), dtypes.push_back(dtype);
    inputs.push_back(*new_keys);
    inputs.push_back(*new_values);
  }
  if (sinks) {
    require(sinks->dtype() == mx::float32 && sinks->ndim() == 1 && sinks->shape(0) == shape.num_heads,
            "sinks must be float32, one for each head");
    inputs.push_back(*sinks);
  }
  auto primitive = std::make_shared<RaggedAttention>(mx::default_stream(mx::Device::cpu), shape, std::move(rows),
                                                     new_keys.has_value(), sinks.has_value());
  return mx::array::make_arrays(shapes, dtypes, primitive, inputs);
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("ragged_attention", &ragged_attention, nb::arg("queries"), nb::arg("keys"), nb::arg("values"),
        nb::arg("segments"), nb::arg("new_keys") = nb::none(), nb::arg("new_values") = nb::none(), nb::kw_only(),
        nb::arg("scale"), nb::arg("window") = 0, nb::arg("softcap") = 0.0f, nb::arg("sinks") = nb::none());
}

}  // namespace mtplx
