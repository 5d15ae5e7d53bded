// A stack of decoder layers as one MLX primitive: what lies between the embedding and the output head costs one operation.
#include "decoder.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <tuple>

#include "array_rows.h"
#include "mlx/backend/cpu/encoder.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

// Weights as arrays. They are evaluated once: a primitive reads them without asking for them.
struct ProjectionArrays {
  mx::array words, scales, biases;
  int bits, group, num_outputs;
  std::optional<mx::array> bias;

  void eval() {
    mx::eval(words, scales, biases);
    if (bias) bias->eval();
  }

  Projection get() const {
    const int num_inputs = int(scales.shape(1)) * group;
    return {{words.data<uint32_t>(), scales.data<float>(), biases.data<float>(), bits, group, num_inputs, num_outputs},
            bias ? bias->data<float>() : nullptr};
  }
};

struct LayerArrays {
  std::vector<ProjectionArrays> projections;  // query, key, value, output, gate, up, down
  mx::array input_norm, post_norm;
  std::optional<mx::array> query_norm, key_norm;

  void eval() {
    for (auto& projection : projections) projection.eval();
    mx::eval(input_norm, post_norm);
    if (query_norm) mx::eval(*query_norm, *key_norm);
  }

  DecoderLayer get() const {
    const auto& p = projections;
    const auto pointer = [](const std::optional<mx::array>& a) { return a ? a->data<float>() : nullptr; };
    return {p[0].get(), p[1].get(), p[2].get(), p[3].get(), p[4].get(), p[5].get(), p[6].get(),
            input_norm.data<float>(), post_norm.data<float>(), pointer(query_norm), pointer(key_norm)};
  }
};

struct Stack {
  DecoderShape shape;
  mx::array inverse_frequencies;
  std::vector<LayerArrays> arrays;
  std::vector<DecoderLayer> layers;
};

// Rows `start` up to `stop` of the batch, at `position` and after in their sequence.
struct Rows {
  int64_t position;
  int start, stop;
};

// Input h [T, D], then keys and values [1, KV heads, capacity, head size] of each layer, for each segment. Outputs
// likewise, with the new rows in place: in the very same memory where nobody else holds it.
class DecoderLayers : public CpuPrimitive {
 public:
  DecoderLayers(mx::Stream stream, std::shared_ptr<const Stack> stack, std::vector<Rows> rows)
      : CpuPrimitive(stream), stack_(std::move(stack)), rows_(std::move(rows)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    // Each output holds the inputs, which therefore could never be donated. One hold on them is enough.
    for (auto& output : outputs)
      if (&output.inputs() != &inputs && !output.is_tracer()) output.inputs().clear();
    auto& encoder = mx::cpu::get_command_encoder(stream());
    outputs[0].set_data(mx::allocator::malloc(outputs[0].nbytes()));
    std::vector<std::tuple<mx::array, mx::array>> copies;  // place, source
    std::vector<mx::array> buffers;
    for (size_t i = 1; i < inputs.size(); i++) {
      if (!inputs[i].flags().row_contiguous) throw std::invalid_argument("a buffer does not lie in one piece");
      if (inputs[i].is_donatable()) {
        outputs[i].copy_shared_buffer(inputs[i]);
      } else {
        outputs[i].set_data(mx::allocator::malloc(outputs[i].nbytes()));
        copies.emplace_back(mx::array::unsafe_weak_copy(outputs[i]), mx::array::unsafe_weak_copy(inputs[i]));
      }
      buffers.push_back(mx::array::unsafe_weak_copy(outputs[i]));
    }
    for (const auto& input : inputs) encoder.set_input_array(input);
    for (auto& output : outputs) encoder.set_output_array(output);
    encoder.dispatch([stack = stack_, rows = rows_, copies = std::move(copies), buffers = std::move(buffers),
                      from = mx::array::unsafe_weak_copy(inputs[0]),
                      hidden = mx::array::unsafe_weak_copy(outputs[0])]() mutable {
      for (auto& [place, source] : copies) std::copy_n(source.data<float>(), source.size(), place.data<float>());
      std::copy_n(from.data<float>(), from.size(), hidden.data<float>());
      run(*stack, rows, buffers, hidden);
    });
  }

  const char* name() const override { return "DecoderLayers"; }

 private:
  static Segments segments_of(const std::vector<Rows>& rows, std::vector<mx::array>& buffers, size_t layer,
                              size_t num_layers) {
    Segments segments;
    for (size_t i = 0; i < rows.size(); i++) {
      mx::array& keys = buffers[2 * (i * num_layers + layer)];
      mx::array& values = buffers[2 * (i * num_layers + layer) + 1];
      segments.push_back({keys.data<float>(), values.data<float>(), keys.shape(2), 0, rows[i].position, rows[i].start,
                          rows[i].stop});
    }
    return segments;
  }

  static void run(const Stack& stack, const std::vector<Rows>& rows, std::vector<mx::array>& buffers,
                  mx::array& hidden) {
    const size_t num_layers = stack.layers.size();
    std::vector<Segments> segments;
    for (size_t layer = 0; layer < num_layers; layer++)
      segments.push_back(segments_of(rows, buffers, layer, num_layers));
    DecoderPass pass(stack.shape, stack.inverse_frequencies.data<float>(), stack.layers[0].query.weights.group,
                     segments[0], hidden.shape(0), num_threads(), hidden.data<float>());
    run_in_parallel(true, [&](const Team& team) {
      for (size_t layer = 0; layer < num_layers; layer++) pass.run(stack.layers[layer], segments[layer], team);
    });
  }

  std::shared_ptr<const Stack> stack_;
  std::vector<Rows> rows_;
};

class Decoder {
 public:
  Decoder(std::vector<LayerArrays> layers, const mx::array& inverse_frequencies, int hidden, int intermediate,
          int num_heads, int num_kv_heads, int head_size, float scale, float eps, bool rope_in_pairs)
      : stack_(std::make_shared<Stack>(Stack{
            {hidden, intermediate, {num_heads, num_kv_heads, head_size, head_size, scale, 0.0f, 0},
             {head_size, int(inverse_frequencies.size()), rope_in_pairs}, eps},
            inverse_frequencies, std::move(layers), {}})) {
    stack_->inverse_frequencies.eval();
    for (auto& arrays : stack_->arrays) {
      arrays.eval();
      stack_->layers.push_back(arrays.get());
    }
  }

  std::vector<mx::array> operator()(const mx::array& hidden, const std::vector<std::tuple<int64_t, int, int>>& rows,
                                    const std::vector<mx::array>& buffers) const {
    const auto stream = mx::default_stream(mx::Device::cpu);
    std::vector<Rows> segments;
    for (const auto& [position, start, stop] : rows) segments.push_back({position, start, stop});
    std::vector<mx::array> inputs{mx::contiguous(hidden, false, stream)};
    inputs.insert(inputs.end(), buffers.begin(), buffers.end());
    std::vector<mx::Shape> shapes;
    for (const auto& input : inputs) shapes.push_back(input.shape());
    const std::vector<mx::Dtype> types(inputs.size(), mx::float32);
    return mx::array::make_arrays(std::move(shapes), types,
                                  std::make_shared<DecoderLayers>(stream, stack_, std::move(segments)), inputs);
  }

 private:
  std::shared_ptr<Stack> stack_;
};

}  // namespace

void bind_decoder(nb::module_& m) {
  nb::class_<ProjectionArrays>(m, "Projection")
      .def(nb::init<mx::array, mx::array, mx::array, int, int, int, std::optional<mx::array>>(), nb::arg("words"),
           nb::arg("scales"), nb::arg("biases"), nb::kw_only(), nb::arg("bits"), nb::arg("group_size"),
           nb::arg("num_outputs"), nb::arg("bias").none());
  nb::class_<LayerArrays>(m, "DecoderLayer")
      .def(nb::init<std::vector<ProjectionArrays>, mx::array, mx::array, std::optional<mx::array>,
                    std::optional<mx::array>>(),
           nb::arg("projections"), nb::kw_only(), nb::arg("input_norm"), nb::arg("post_norm"),
           nb::arg("query_norm").none(), nb::arg("key_norm").none());
  nb::class_<Decoder>(m, "Decoder")
      .def(nb::init<std::vector<LayerArrays>, const mx::array&, int, int, int, int, int, float, float, bool>(),
           nb::arg("layers"), nb::arg("inverse_frequencies"), nb::kw_only(), nb::arg("hidden"),
           nb::arg("intermediate"), nb::arg("num_heads"), nb::arg("num_kv_heads"), nb::arg("head_size"),
           nb::arg("scale"), nb::arg("eps"), nb::arg("rope_in_pairs"))
      .def("__call__", &Decoder::operator(), nb::arg("hidden"), nb::arg("rows"), nb::arg("buffers"));
}

}  // namespace mtplx
