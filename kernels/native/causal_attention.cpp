// Causal attention for training as an MLX primitive, which has gradients.
#include "causal_attention.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "array_rows.h"
#include "mlx/backend/cpu/encoder.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

// A head's rows of an array [B, heads, T, head size].
HeadRows<const float> head(const mx::array& a, int64_t sequence, int number) {
  const int64_t step = a.shape(3), rows = a.shape(2);
  return {a.data<float>() + (sequence * a.shape(1) + number) * rows * step, step};
}

// And of one [B, T, heads, head size].
template <typename Float>
HeadRows<Float> row_head(const mx::array& a, int64_t sequence, int number) {
  const int64_t step = int64_t(a.shape(2)) * a.shape(3);
  return {const_cast<mx::array&>(a).data<float>() + sequence * a.shape(1) * step + number * a.shape(3), step};
}

// Keys and values, and those of the chain in turn, from `first` on, as `find(array)` gives their heads.
template <typename Float, typename Find>
Seen<Float> seen_of(const std::vector<mx::array>& arrays, Find find) {
  Seen<Float> seen{find(arrays[1]), find(arrays[2]), {}, {}};
  for (size_t i = 3; i + 1 < arrays.size(); i += 2) {
    seen.chained_keys.push_back(find(arrays[i]));
    seen.chained_values.push_back(find(arrays[i + 1]));
  }
  return seen;
}

// Calls `work(attention, sequence, head of the keys)` for all these, with a part of them on each thread.
template <typename Work>
void for_each_group(const std::vector<mx::array>& inputs, int num_chained, float scale, Work work) {
  const int rows = inputs[0].shape(2), heads = inputs[1].shape(1);
  const int64_t count = inputs[1].size() == 0 ? 0 : int64_t(inputs[1].shape(0)) * heads;
  run_in_parallel(count > 1, [&](const Team& team) {
    CausalAttention attention(rows, inputs[0].shape(3), num_chained, scale);
    team.share(count, [&](Team::Range range) {
      for (; range.begin < range.end; range.begin++) work(attention, range.begin / heads, range.begin % heads);
    });
  });
}

std::vector<mx::array> weak_copies(const std::vector<mx::array>& arrays) {
  std::vector<mx::array> copies;
  for (const auto& a : arrays) copies.push_back(mx::array::unsafe_weak_copy(a));
  return copies;
}

// Inputs queries [B, H, T, size], keys and values [B, KV, T, size], and chained keys and values, in turn, of that shape.
// For gradients also that by the output [B, T, H, size]; outputs then are the gradients by the others [B, T, …, size].
class CausalAttentionArrays : public CpuPrimitive {
 public:
  CausalAttentionArrays(mx::Stream stream, float scale, bool is_gradient)
      : CpuPrimitive(stream), scale_(scale), is_gradient_(is_gradient) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const auto& input : inputs) encoder.set_input_array(input);
    for (auto& out : outputs) {
      out.set_data(mx::allocator::malloc(out.nbytes()));
      encoder.set_output_array(out);
    }
    const auto run = is_gradient_ ? &CausalAttentionArrays::find_gradients : &CausalAttentionArrays::attend;
    encoder.dispatch([run, inputs = weak_copies(inputs), outputs = weak_copies(outputs), scale = scale_] {
      run(inputs, outputs, scale);
    });
  }

  std::vector<mx::array> vjp(const std::vector<mx::array>& inputs, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& wanted, const std::vector<mx::array>&) override;

  bool is_equivalent(const Primitive& other) const override {
    const auto& same = static_cast<const CausalAttentionArrays&>(other);
    return scale_ == same.scale_ && is_gradient_ == same.is_gradient_;
  }

  const char* name() const override { return "NativeCausalAttention"; }

 private:
  static void attend(const std::vector<mx::array>& inputs, const std::vector<mx::array>& outputs, float scale) {
    const int group = inputs[0].shape(1) / inputs[1].shape(1);
    for_each_group(inputs, (inputs.size() - 3) / 2, scale, [&](auto& attention, int64_t sequence, int kv_head) {
      const auto seen =
          seen_of<const float>(inputs, [&](const mx::array& a) { return head(a, sequence, kv_head); });
      for (int i = kv_head * group; i < (kv_head + 1) * group; i++)
        attention.attend(head(inputs[0], sequence, i), seen, row_head<float>(outputs[0], sequence, i));
    });
  }

  static void find_gradients(const std::vector<mx::array>& inputs, const std::vector<mx::array>& outputs,
                             float scale) {
    const int group = inputs[0].shape(1) / inputs[1].shape(1), rows = inputs[0].shape(2), size = inputs[0].shape(3);
    for_each_group(inputs, (inputs.size() - 4) / 2, scale, [&](auto& attention, int64_t sequence, int kv_head) {
      const auto seen =
          seen_of<const float>(inputs, [&](const mx::array& a) { return head(a, sequence, kv_head); });
      const auto by = seen_of<float>(outputs, [&](const mx::array& a) {
        const auto to = row_head<float>(a, sequence, kv_head);
        for (int row = 0; row < rows; row++) std::fill_n(to.at(row), size, 0.0f);
        return to;
      });
      for (int i = kv_head * group; i < (kv_head + 1) * group; i++)
        attention.find_gradients(head(inputs[0], sequence, i), seen,
                                 row_head<const float>(inputs.back(), sequence, i),
                                 row_head<float>(outputs[0], sequence, i), by);
    });
  }

  float scale_;
  bool is_gradient_;
};

// [B, heads, T, size] to [B, T, heads, size], and back.
mx::array swapped(const mx::array& a) { return mx::swapaxes(a, 1, 2, mx::default_stream(mx::Device::cpu)); }

mx::array contiguous_rows(const mx::array& a) { return mx::contiguous(a, false, mx::default_stream(mx::Device::cpu)); }

std::vector<mx::array> CausalAttentionArrays::vjp(const std::vector<mx::array>& inputs,
                                                  const std::vector<mx::array>& cotangents,
                                                  const std::vector<int>& wanted, const std::vector<mx::array>&) {
  require(!is_gradient_, "the gradients of attention have no gradients");
  std::vector<mx::Shape> shapes;
  for (const auto& input : inputs) shapes.push_back({input.shape(0), input.shape(2), input.shape(1), input.shape(3)});
  auto given = inputs;
  given.push_back(contiguous_rows(cotangents[0]));
  const auto all = mx::array::make_arrays(shapes, std::vector<mx::Dtype>(inputs.size(), mx::float32),
                                          std::make_shared<CausalAttentionArrays>(stream(), scale_, true), given);
  std::vector<mx::array> gradients;
  for (int input : wanted) gradients.push_back(swapped(all[input]));
  return gradients;
}

mx::array causal_attention(const std::vector<mx::array>& given, float scale) {
  require(given.size() >= 3 && given.size() % 2 == 1, "queries, and pairs of keys and values must be given");
  const auto& queries = given[0];
  require(queries.ndim() == 4, "queries must be [B, H, T, size]");
  std::vector<mx::array> inputs;
  for (const auto& a : given) {
    require_float32(a);
    inputs.push_back(contiguous_rows(a));
    const auto shape = given[1].shape();
    require(&a == &queries || (a.shape() == shape && a.ndim() == 4 && a.shape(0) == queries.shape(0) &&
                               a.shape(2) == queries.shape(2) && a.shape(3) == queries.shape(3) && a.shape(1) > 0 &&
                               queries.shape(1) % a.shape(1) == 0),
            "keys and values must be [B, KV, T, size], with KV a divisor of the number of heads");
  }
  const auto stream = mx::default_stream(mx::Device::cpu);
  return swapped(mx::array({queries.shape(0), queries.shape(2), queries.shape(1), queries.shape(3)}, mx::float32,
                           std::make_shared<CausalAttentionArrays>(stream, scale, false), std::move(inputs)));
}

}  // namespace

void bind_causal_attention(nb::module_& m) {
  m.def("causal_attention", &causal_attention, nb::arg("arrays"), nb::arg("scale"));
}

}  // namespace mtplx
