// Activations, alone or gating, as an MLX primitive that has gradients.
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

struct RowFunctions {
  void (*activate)(const float* x, const float* up, int n, float* out);
  void (*gradient)(const float* x, const float* up, const float* gradient, int n, float* by_x, float* by_up);

  bool operator==(const RowFunctions&) const = default;
};

template <typename Activation>
constexpr RowFunctions functions_of() {
  return {activate_row<Activation>, activation_gradient_row<Activation>};
}

RowFunctions find_activation(const std::string& name) {
  if (name == "silu") return functions_of<Silu>();
  if (name == "gelu") return functions_of<Gelu>();
  if (name == "gelu_tanh") return functions_of<GeluTanh>();
  throw std::invalid_argument("no activation is called " + name);
}

// Inputs x [..., N], up [..., N] if the activation gates it, and the gradient [..., N] by the output; outputs the
// gradients [..., N] by x, and by up.
class ActivationGradient : public CpuPrimitive {
 public:
  ActivationGradient(mx::Stream stream, RowFunctions functions) : CpuPrimitive(stream), functions_(functions) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (auto& out : outputs) out.set_data(mx::allocator::malloc(out.nbytes()));
    const bool gates = outputs.size() > 1;
    const int n = inputs[0].shape(-1);
    const int64_t rows = inputs[0].size() == 0 ? 0 : num_rows(inputs[0]);
    const ArrayRows x(inputs[0]), up(inputs[1]), gradient(inputs.back());
    auto work = [=, by_x = outputs[0].data<float>(), by_up = outputs.back().data<float>(),
                 compute = functions_.gradient] {
      run_in_parallel(rows > 1 && rows * n >= kWorthSharing, [&](const Team& team) {
        std::vector<float> gathered(3 * n);
        for (auto part = team.part(rows); part.begin < part.end; part.begin++) {
          const int64_t row = part.begin;
          compute(x.at(row, gathered.data()), gates ? up.at(row, gathered.data() + n) : nullptr,
                  gradient.at(row, gathered.data() + 2 * n), n, by_x + row * n, by_up + row * n);
        }
      });
    };
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const auto& input : inputs) encoder.set_input_array(input);
    for (auto& out : outputs) encoder.set_output_array(out);
    encoder.dispatch(std::move(work));
  }

  bool is_equivalent(const Primitive& other) const override {
    return functions_ == static_cast<const ActivationGradient&>(other).functions_;
  }

  const char* name() const override { return "ActivationGradient"; }

 private:
  RowFunctions functions_;
};

// Inputs x [..., N] and, if the activation gates it, up [..., N]; output [..., N]. Halves of one array do as inputs.
class Activation : public CpuPrimitive {
 public:
  Activation(mx::Stream stream, RowFunctions functions) : CpuPrimitive(stream), functions_(functions) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    const int n = out.shape(-1);
    allocate(out, inputs[0]);
    const bool gates = inputs.size() > 1;
    const ArrayRows x(inputs[0]), up(inputs.back());
    float* const to = out.data<float>();
    const int64_t rows = out.size() == 0 ? 0 : num_rows(out);
    auto work = [=, activate = functions_.activate] {
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
    return functions_ == static_cast<const Activation&>(other).functions_;
  }

  std::vector<mx::array> vjp(const std::vector<mx::array>& inputs, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& wanted, const std::vector<mx::array>&) override {
    auto given = inputs;
    given.push_back(cotangents[0]);
    const auto all = mx::array::make_arrays(std::vector<mx::Shape>(inputs.size(), inputs[0].shape()),
                                            std::vector<mx::Dtype>(inputs.size(), mx::float32),
                                            std::make_shared<ActivationGradient>(stream(), functions_), given);
    std::vector<mx::array> gradients;
    for (int input : wanted) gradients.push_back(all[input]);
    return gradients;
  }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override { return {inputs[0].shape()}; }

  const char* name() const override { return "Activation"; }

 private:
  RowFunctions functions_;
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
