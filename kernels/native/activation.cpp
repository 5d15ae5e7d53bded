// Activations, alone or gating, as an MLX primitive.
#include "activation.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "array_rows.h"
#include "mlx/backend/cpu/encoder.h"
#include "parallel.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

// Below this many values a second thread costs more than it saves.
constexpr int64_t kWorthSharing = 1 << 14;

using ActivateRow = void (*)(const float* x, const float* up, int n, float* out);

ActivateRow find_activation(const std::string& name) {
  if (name == "silu") return activate_row<Silu>;
  if (name == "gelu") return activate_row<Gelu>;
  if (name == "gelu_tanh") return activate_row<GeluTanh>;
  throw std::invalid_argument("no activation is called " + name);
}

// Inputs x [..., N] and, if the activation gates it, up [..., N]; output [..., N]. Halves of one array do as inputs.
class Activation : public CpuPrimitive {
 public:
  Activation(mx::Stream stream, ActivateRow activate) : CpuPrimitive(stream), activate_(activate) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    const int n = out.shape(-1);
    allocate(out, inputs[0]);
    const bool gates = inputs.size() > 1;
    const ArrayRows x(inputs[0]), up(inputs.back());
    float* const to = out.data<float>();
    const int64_t rows = out.size() == 0 ? 0 : num_rows(out);
    auto work = [=, activate = activate_] {
      run_in_parallel(rows > 1 && rows * n >= kWorthSharing, [&](const Team& team) {
        std::vector<float> gathered(2 * n);
        const auto part = team.part(rows);
        for (int64_t row = part.begin; row < part.end; row++)
          activate(x.at(row, gathered.data()), gates ? up.at(row, gathered.data() + n) : nullptr, n, to + row * n);
      });
    };
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const auto& input : inputs) encoder.set_input_array(input);
    encoder.set_output_array(out);
    encoder.dispatch(std::move(work));
  }

  bool is_equivalent(const Primitive& other) const override {
    return activate_ == static_cast<const Activation&>(other).activate_;
  }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override { return {inputs[0].shape()}; }

  const char* name() const override { return "Activation"; }

 private:
  ActivateRow activate_;
};

mx::array activate(const std::string& name, const mx::array& x, const std::optional<mx::array>& up) {
  require(x.ndim() > 0, "x must have an axis");
  std::vector<mx::array> inputs{x};
  if (up) {
    require(up->shape() == x.shape(), "gate and up must have the same shape");
    inputs.push_back(*up);
  }
  for (const auto& input : inputs) require_float32(input);
  auto primitive = std::make_shared<Activation>(mx::default_stream(mx::Device::cpu), find_activation(name));
  return mx::array(x.shape(), mx::float32, primitive, std::move(inputs));
}

}  // namespace

void bind_activation(nb::module_& m) {
  m.def("activate", &activate, nb::arg("name"), nb::arg("x"), nb::arg("up") = nb::none());
}

}  // namespace mtplx
