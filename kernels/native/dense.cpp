// Products with weights that are numbers, as an MLX primitive.
#include "dense.h"

#include <nanobind/nanobind.h>

#include "dense_arrays.h"
#include "mlx/backend/cpu/encoder.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

class DenseLinear : public CpuPrimitive {
 public:
  DenseLinear(mx::Stream stream, int num_outputs) : CpuPrimitive(stream), num_outputs_(num_outputs) {}

  // Inputs x [..., K] and the weights as dense.h lays them out.
  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const auto& input : inputs) encoder.set_input_array(input);
    encoder.set_output_array(out);
    encoder.dispatch([x = mx::array::unsafe_weak_copy(inputs[0]), values = mx::array::unsafe_weak_copy(inputs[1]),
                      out = mx::array::unsafe_weak_copy(out), num_outputs = num_outputs_]() mutable {
      multiply_rows(dense_weights(values, num_outputs), kBlock, RowForm{}, x.data<float>(), num_rows(x), x.shape(-1),
                    out.data<float>());
    });
  }

  bool is_equivalent(const Primitive& other) const override {
    return num_outputs_ == static_cast<const DenseLinear&>(other).num_outputs_;
  }

  const char* name() const override { return "DenseLinear"; }

 private:
  int num_outputs_;
};

mx::array dense_linear(const mx::array& x, const mx::array& values, int num_outputs) {
  require(is_dense_type(values.dtype()), "the weights must be float32, float16 or bfloat16");
  require(values.ndim() == 3 && values.shape(2) == kLanes && values.shape(1) % kBlock == 0 &&
              values.shape(0) == tiles_of(num_outputs),
          "the weights must be [tiles, K, 16], with K of whole blocks");
  require(x.ndim() > 0 && (x.shape(-1) + kBlock - 1) / kBlock * kBlock == values.shape(1),
          "the inputs must be as many as the weights of an output");
  const auto stream = mx::default_stream(mx::Device::cpu);
  auto shape = x.shape();
  shape.back() = num_outputs;
  return mx::array(shape, mx::float32, std::make_shared<DenseLinear>(stream, num_outputs),
                   {mx::contiguous(mx::astype(x, mx::float32, stream), false, stream),
                    mx::contiguous(values, false, stream)});
}

}  // namespace

void bind_dense(nb::module_& m) {
  m.def("dense_linear", &dense_linear, nb::arg("x"), nb::arg("values"), nb::kw_only(), nb::arg("num_outputs"));
}

}  // namespace mtplx
