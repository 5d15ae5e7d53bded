// Softmax and cross-entropy with soft targets as MLX primitives, which have gradients.
#include "softmax.h"

#include <nanobind/nanobind.h>

#include "array_rows.h"
#include "mlx/backend/cpu/encoder.h"
#include "parallel.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

// Below this many values a second thread costs more than it saves.
constexpr int64_t kWorthSharing = 1 << 14;

enum class RowFunction { kSoftmax, kCrossEntropy, kCrossEntropyGradient };

// Inputs by function, and the output:
//   kSoftmax                x [..., N]                                    [..., N]
//   kCrossEntropy           logits and probabilities [..., N]             [...]
//   kCrossEntropyGradient   these, and a factor for each row [..., 1]     [..., N], by the logits
class SoftmaxRows : public CpuPrimitive {
 public:
  SoftmaxRows(mx::Stream stream, RowFunction function) : CpuPrimitive(stream), function_(function) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    const int n = inputs[0].shape(-1);
    const int64_t rows = n == 0 ? 0 : num_rows(inputs[0]);
    const ArrayRows x(inputs[0]), p(inputs.size() > 1 ? inputs[1] : inputs[0]), factors(inputs.back());
    auto work = [=, to = out.data<float>(), function = function_] {
      run_in_parallel(rows > 1 && rows * n >= kWorthSharing, [&](const Team& team) {
        std::vector<float> gathered(2 * n);
        for (auto part = team.part(rows); part.begin < part.end; part.begin++) {
          const int64_t row = part.begin;
          const float* const from = x.at(row, gathered.data());
          if (function == RowFunction::kSoftmax) {
            softmax_row(from, n, to + row * n);
            continue;
          }
          const float* const targets = p.at(row, gathered.data() + n);
          float factor;
          if (function == RowFunction::kCrossEntropy)
            to[row] = cross_entropy_row(from, targets, n);
          else
            cross_entropy_gradient_row(from, targets, n, *factors.at(row, &factor), to + row * n);
        }
      });
    };
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const auto& input : inputs) encoder.set_input_array(input);
    encoder.set_output_array(out);
    encoder.dispatch(std::move(work));
  }

  std::vector<mx::array> vjp(const std::vector<mx::array>& inputs, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& wanted, const std::vector<mx::array>& outputs) override;

  bool is_equivalent(const Primitive& other) const override {
    return function_ == static_cast<const SoftmaxRows&>(other).function_;
  }

  const char* name() const override { return "NativeSoftmaxRows"; }

 private:
  RowFunction function_;
};

mx::array apply(RowFunction function, mx::Shape shape, std::vector<mx::array> inputs) {
  auto primitive = std::make_shared<SoftmaxRows>(mx::default_stream(mx::Device::cpu), function);
  return mx::array(std::move(shape), mx::float32, std::move(primitive), std::move(inputs));
}

std::vector<mx::array> SoftmaxRows::vjp(const std::vector<mx::array>& inputs,
                                        const std::vector<mx::array>& cotangents, const std::vector<int>& wanted,
                                        const std::vector<mx::array>& outputs) {
  const auto& cotangent = cotangents[0];
  if (function_ == RowFunction::kSoftmax) {
    const auto weighed = mx::multiply(cotangent, outputs[0], stream());
    return {mx::subtract(weighed, mx::multiply(outputs[0], mx::sum(weighed, -1, true, stream()), stream()), stream())};
  }
  require(function_ == RowFunction::kCrossEntropy && wanted == std::vector<int>{0},
          "cross-entropy has a gradient by the logits only, and that has none");
  return {apply(RowFunction::kCrossEntropyGradient, inputs[0].shape(),
                {inputs[0], inputs[1], mx::expand_dims(cotangent, -1, stream())})};
}

mx::array softmax_of_rows(const mx::array& x) {
  require_float32(x);
  require(x.ndim() > 0, "x must have an axis");
  return apply(RowFunction::kSoftmax, x.shape(), {x});
}

mx::array cross_entropy(const mx::array& logits, const mx::array& probabilities) {
  require_float32(logits), require_float32(probabilities);
  require(logits.ndim() > 0 && logits.shape(-1) > 0 && logits.shape() == probabilities.shape(),
          "logits and probabilities must have the same shape, and values");
  return apply(RowFunction::kCrossEntropy, mx::Shape(logits.shape().begin(), logits.shape().end() - 1),
               {logits, probabilities});
}

}  // namespace

void bind_softmax(nb::module_& m) {
  m.def("softmax", &softmax_of_rows, nb::arg("x"));
  m.def("cross_entropy", &cross_entropy, nb::arg("logits"), nb::arg("probabilities"));
}

}  // namespace mtplx
