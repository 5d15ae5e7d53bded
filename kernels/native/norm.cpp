// RMSNorm and LayerNorm as MLX primitives.
#include "norm.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <optional>

#include "array_rows.h"
#include "mlx/backend/cpu/encoder.h"
#include "parallel.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

// Below this many values a second thread costs more than it saves.
constexpr int64_t kWorthSharing = 1 << 15;

struct NormForm {
  bool centred;  // LayerNorm, not RMSNorm
  bool has_residual, has_weight, has_bias;
  float eps;

  bool operator==(const NormForm&) const = default;
};

// Inputs x [..., N], and as far as there are any: residual [..., N], weight [N], bias [N].
// Outputs y [..., N] and, with a residual, x + residual.
class Norm : public CpuPrimitive {
 public:
  Norm(mx::Stream stream, NormForm form) : CpuPrimitive(stream), form_(form) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    const int n = inputs[0].shape(-1);
    allocate(outputs.back(), inputs[0]);
    if (form_.has_residual) allocate(outputs[0], inputs[1]);
    auto next = inputs.begin() + 1;
    const ArrayRows x(inputs[0]), residual(form_.has_residual ? *next++ : inputs[0]);
    const ArrayRows weight(form_.has_weight ? *next++ : inputs[0]), bias(form_.has_bias ? *next : inputs[0]);
    float* const y = outputs[0].data<float>();
    float* const sums = outputs.back().data<float>();

    const int64_t rows = outputs[0].size() == 0 ? 0 : num_rows(outputs[0]);
    auto work = [=, form = form_] {
      run_in_parallel(rows > 1 && rows * n >= kWorthSharing, [&](const Team& team) {
        std::vector<float> gathered(4 * n);
        float* const w = gathered.data() + 2 * n;
        const float* const scales = form.has_weight ? weight.at(0, w) : nullptr;
        const float* const shifts = form.has_bias ? bias.at(0, w + n) : nullptr;
        const auto part = team.part(rows);
        for (int64_t row = part.begin; row < part.end; row++) {
          const float* from = x.at(row, gathered.data());
          if (form.has_residual) {
            add_row(from, residual.at(row, gathered.data() + n), n, sums + row * n);
            from = sums + row * n;
          }
          if (form.centred)
            layer_norm_row(from, scales, shifts, n, form.eps, y + row * n);
          else
            rms_norm_row(from, scales, n, form.eps, y + row * n);
        }
      });
    };
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const auto& input : inputs) encoder.set_input_array(input);
    for (auto& output : outputs) encoder.set_output_array(output);
    encoder.dispatch(std::move(work));
  }

  bool is_equivalent(const Primitive& other) const override { return form_ == static_cast<const Norm&>(other).form_; }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override {
    return std::vector<mx::Shape>(form_.has_residual ? 2 : 1, inputs[0].shape());
  }

  const char* name() const override { return form_.centred ? "LayerNorm" : "RMSNorm"; }

 private:
  NormForm form_;
};

using MaybeArray = std::optional<mx::array>;

std::vector<mx::array> make_norm(bool centred, const mx::array& x, const MaybeArray& residual, const MaybeArray& weight,
                                 const MaybeArray& bias, float eps) {
  require(x.ndim() > 0, "x must have an axis");
  std::vector<mx::array> inputs{x};
  if (residual) {
    require(residual->shape() == x.shape(), "x and residual must have the same shape");
    inputs.push_back(*residual);
  }
  for (const auto* affine : {&weight, &bias}) {
    if (!*affine) continue;
    require((*affine)->shape() == mx::Shape{x.shape(-1)}, "weight and bias must have the shape of a row");
    inputs.push_back(**affine);
  }
  for (const auto& input : inputs) require_float32(input);
  const NormForm form{centred, residual.has_value(), weight.has_value(), bias.has_value(), eps};
  auto primitive = std::make_shared<Norm>(mx::default_stream(mx::Device::cpu), form);
  const size_t num_outputs = residual ? 2 : 1;
  return mx::array::make_arrays(std::vector<mx::Shape>(num_outputs, x.shape()),
                                std::vector<mx::Dtype>(num_outputs, mx::float32), primitive, inputs);
}

using Pair = std::pair<mx::array, mx::array>;

mx::array rms_norm(const mx::array& x, const MaybeArray& weight, float eps) {
  return make_norm(false, x, {}, weight, {}, eps)[0];
}

Pair add_rms_norm(const mx::array& x, const mx::array& residual, const MaybeArray& weight, float eps) {
  const auto made = make_norm(false, x, residual, weight, {}, eps);
  return {made[0], made[1]};
}

mx::array layer_norm(const mx::array& x, const MaybeArray& weight, const MaybeArray& bias, float eps) {
  return make_norm(true, x, {}, weight, bias, eps)[0];
}

Pair add_layer_norm(const mx::array& x, const mx::array& residual, const MaybeArray& weight, const MaybeArray& bias,
                    float eps) {
  const auto made = make_norm(true, x, residual, weight, bias, eps);
  return {made[0], made[1]};
}

}  // namespace

void bind_norm(nb::module_& m) {
  m.def("rms_norm", &rms_norm, nb::arg("x"), nb::arg("weight").none(), nb::arg("eps"));
  m.def("layer_norm", &layer_norm, nb::arg("x"), nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("eps"));
  m.def("add_rms_norm", &add_rms_norm, nb::arg("x"), nb::arg("residual"), nb::arg("weight").none(), nb::arg("eps"));
  m.def("add_layer_norm", &add_layer_norm, nb::arg("x"), nb::arg("residual"), nb::arg("weight").none(),
        nb::arg("bias").none(), nb::arg("eps"));
}

}  // namespace mtplx
