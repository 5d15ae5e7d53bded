// Rotary position embedding as an MLX primitive.
#include "rope.h"

#include <nanobind/nanobind.h>

#include "array_rows.h"
#include "mlx/backend/cpu/encoder.h"
#include "parallel.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

// Below this many values a second thread costs more than it saves.
constexpr int64_t kWorthSharing = 1 << 15;

// Inputs x [B, H, L, D], offsets int32 [B] or [1], inverse frequencies [half]; output like x.
// Token l of sequence b stands at position offsets[b] + l.
class Rope : public CpuPrimitive {
 public:
  Rope(mx::Stream stream, RopeShape shape, float scale) : CpuPrimitive(stream), shape_(shape), scale_(scale) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    allocate(out, inputs[0]);
    const int heads = out.shape(1), length = out.shape(2);
    const ArrayRows x(inputs[0]), frequencies(inputs[2]);
    const int32_t* const offsets = inputs[1].data<int32_t>();
    const int64_t step = inputs[1].size() > 1 ? inputs[1].strides(0) : 0;
    float* const to = out.data<float>();
    const int64_t tokens = int64_t(out.shape(0)) * length;
    auto work = [=, shape = shape_, scale = scale_, size = out.size()] {
      run_in_parallel(tokens > 1 && int64_t(size) >= kWorthSharing, [&](const Team& team) {
        std::vector<float> memory(3 * shape.half + shape.head_size);
        float* const cosines = memory.data();
        float* const sines = cosines + shape.half;
        float* const gathered = sines + shape.half;
        const float* const inverse = frequencies.at(0, gathered + shape.head_size);
        const auto part = team.part(tokens);
        for (int64_t token = part.begin; token < part.end; token++) {
          const int64_t sequence = token / length, index = token % length;
          const float position = (float(index) + float(offsets[sequence * step])) * scale;
          rope_table(position, inverse, shape.half, cosines, sines);
          for (int head = 0; head < heads; head++) {
            const int64_t row = (sequence * heads + head) * length + index;
            rope_head(x.at(row, gathered), cosines, sines, shape, to + row * shape.head_size);
          }
        }
      });
    };
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const auto& input : inputs) encoder.set_input_array(input);
    encoder.set_output_array(out);
    encoder.dispatch(std::move(work));
  }

  bool is_equivalent(const Primitive& other) const override {
    const auto& rope = static_cast<const Rope&>(other);
    return shape_ == rope.shape_ && scale_ == rope.scale_;
  }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override { return {inputs[0].shape()}; }

  const char* name() const override { return "Rope"; }

 private:
  RopeShape shape_;
  float scale_;
};

mx::array rope(const mx::array& x, const mx::array& offsets, const mx::array& inverse_frequencies, bool traditional,
               float scale) {
  require(x.ndim() == 4, "x must be [B, H, L, D]");
  require(offsets.dtype() == mx::int32 && offsets.ndim() <= 1, "offsets must be int32, one or one a sequence");
  require(offsets.size() == 1 || offsets.shape(0) == x.shape(0), "there must be one offset, or one a sequence");
  require(inverse_frequencies.ndim() == 1, "inverse frequencies must have one axis");
  require(2 * inverse_frequencies.shape(0) <= x.shape(3), "there are more frequencies than a head has pairs of values");
  require_float32(x);
  require_float32(inverse_frequencies);
  const RopeShape shape{x.shape(3), inverse_frequencies.shape(0), traditional};
  auto primitive = std::make_shared<Rope>(mx::default_stream(mx::Device::cpu), shape, scale);
  return mx::array(x.shape(), mx::float32, primitive, {x, offsets, inverse_frequencies});
}

}  // namespace

void bind_rope(nb::module_& m) {
  m.def("rope", &rope, nb::arg("x"), nb::arg("offsets"), nb::arg("inverse_frequencies"), nb::kw_only(),
        nb::arg("traditional"), nb::arg("scale"));
}

}  // namespace mtplx
