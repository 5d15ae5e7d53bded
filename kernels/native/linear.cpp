// Products with quantized weights as an MLX primitive.
#include "linear.h"

#include <nanobind/nanobind.h>

#include "array_rows.h"
#include "threads.h"
#include "mlx/backend/cpu/encoder.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

class QuantizedLinear : public CpuPrimitive {
 public:
  QuantizedLinear(mx::Stream stream, int bits, int group, int num_outputs, RowForm form)
      : CpuPrimitive(stream), bits_(bits), group_(group), num_outputs_(num_outputs), form_(form) {}

  // Inputs x [..., K], words, scales, biases as linear.h lays them out.
  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const auto& input : inputs) encoder.set_input_array(input);
    encoder.set_output_array(out);
    encoder.dispatch([x = mx::array::unsafe_weak_copy(inputs[0]), words = mx::array::unsafe_weak_copy(inputs[1]),
                      scales = mx::array::unsafe_weak_copy(inputs[2]), biases = mx::array::unsafe_weak_copy(inputs[3]),
                      out = mx::array::unsafe_weak_copy(out), bits = bits_, group = group_,
                      num_outputs = num_outputs_, form = form_]() mutable {
      const int num_inputs = x.shape(-1);
      const QuantizedWeights weights{words.data<uint32_t>(), scales.data<float>(), biases.data<float>(), bits,
                                     group,                  num_inputs,           num_outputs};
      multiply_rows(weights, group, form, x.data<float>(), num_rows(x), num_inputs, out.data<float>());
    });
  }

  bool is_equivalent(const Primitive& other) const override {
    const auto& linear = static_cast<const QuantizedLinear&>(other);
    return bits_ == linear.bits_ && group_ == linear.group_ && num_outputs_ == linear.num_outputs_ &&
           form_ == linear.form_;
  }

  const char* name() const override { return "QuantizedLinear"; }

 private:
  int bits_, group_, num_outputs_;
  RowForm form_;
};

mx::array quantized_linear(const mx::array& x, const mx::array& words, const mx::array& scales,
                           const mx::array& biases, int bits, int group, int num_outputs) {
  const auto stream = mx::default_stream(mx::Device::cpu);
  auto shape = x.shape();
  shape.back() = num_outputs;
  const RowForm form{input_bytes(), bits};
  return mx::array(shape, mx::float32, std::make_shared<QuantizedLinear>(stream, bits, group, num_outputs, form),
                   {mx::contiguous(mx::astype(x, mx::float32, stream), false, stream), words, scales, biases});
}

}  // namespace

void bind_linear(nb::module_& m) {
  m.def("quantized_linear", &quantized_linear, nb::arg("x"), nb::arg("words"), nb::arg("scales"), nb::arg("biases"),
        nb::kw_only(), nb::arg("bits"), nb::arg("group_size"), nb::arg("num_outputs"));
}

}  // namespace mtplx
