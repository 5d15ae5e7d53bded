// Products in which each row chooses its weights, as an MLX primitive.
#include "gather.h"

#include <nanobind/nanobind.h>

#include "dense_arrays.h"
#include "linear.h"
#include "mlx/backend/cpu/encoder.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

// Of quantized weights; of no meaning for others.
struct QuantizedForm {
  int bits = 0, group = 0;
  int num_bytes = 0;  // of inputs, as RowForm has them

  bool operator==(const QuantizedForm&) const = default;
};

class GatheredLinear : public CpuPrimitive {
 public:
  GatheredLinear(mx::Stream stream, QuantizedForm form, int num_outputs)
      : CpuPrimitive(stream), form_(form), num_outputs_(num_outputs) {}

  // Inputs x [..., M, K], indices of experts [...], and the weights of all experts, one after the other: quantized ones
  // as linear.h lays them out, or as dense.h does.
  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    auto& encoder = mx::cpu::get_command_encoder(stream());
    std::vector<mx::array> kept;
    for (const auto& input : inputs) {
      encoder.set_input_array(input);
      kept.push_back(mx::array::unsafe_weak_copy(input));
    }
    encoder.set_output_array(out);
    encoder.dispatch([kept = std::move(kept), out = mx::array::unsafe_weak_copy(out), form = form_]() mutable {
      if (kept.size() == 3) {
        const DenseWeights all = dense_weights(kept[2], out.shape(-1));
        const int64_t bytes = int64_t(all.num_tiles()) * all.num_inputs * kLanes * kept[2].itemsize();
        run(kept[0], kept[1], kBlock, RowForm{}, out, [=](int expert) {
          DenseWeights own = all;
          own.values = static_cast<const char*>(all.values) + expert * bytes;
          return own;
        });
      } else {
        const QuantizedWeights all{kept[2].data<uint32_t>(), kept[3].data<float>(), kept[4].data<float>(), form.bits,
                                   form.group, kept[0].shape(-1), out.shape(-1)};
        const int64_t words = all.num_tiles() * all.tile_words();
        const int64_t groups = int64_t(all.num_tiles()) * all.num_groups() * kLanes;
        run(kept[0], kept[1], form.group, RowForm{form.num_bytes, form.bits}, out, [=](int expert) {
          QuantizedWeights own = all;
          own.words += expert * words, own.scales += expert * groups, own.biases += expert * groups;
          return own;
        });
      }
    });
  }

  bool is_equivalent(const Primitive& other) const override {
    const auto& gathered = static_cast<const GatheredLinear&>(other);
    return form_ == gathered.form_ && num_outputs_ == gathered.num_outputs_;
  }

  const char* name() const override { return "GatheredLinear"; }

 private:
  template <typename WeightsOf>
  static void run(const mx::array& x, const mx::array& indices, int group, RowForm form, mx::array& out,
                  WeightsOf weights_of) {
    const ArrayRows rows(x);
    const int num_rows = int(mtplx::num_rows(out)), rows_each = x.shape(-2);
    std::vector<uint32_t> experts(num_rows);
    for (int row = 0; row < num_rows; row++) experts[row] = indices.data<uint32_t>()[row / rows_each];
    multiply_gathered([&](int row) { return rows.at(row, nullptr); }, experts.data(), num_rows, x.shape(-1),
                      weights_of, group, form, out.data<float>());
  }

  QuantizedForm form_;
  int num_outputs_;
};

// x [..., M, K] and indices, broadcast to one another: [..., M, N].
mx::array gathered(const mx::array& x, const mx::array& indices, std::vector<mx::array> weights, QuantizedForm form,
                   int num_outputs) {
  require(x.ndim() >= 2, "the inputs must be [..., M, K]");
  require(mx::issubdtype(indices.dtype(), mx::integer), "the indices must be integers");
  const auto stream = mx::default_stream(mx::Device::cpu);
  auto shape = mx::broadcast_shapes(mx::Shape(x.shape().begin(), x.shape().end() - 2), indices.shape());
  const auto experts = mx::broadcast_to(mx::astype(indices, mx::uint32, stream), shape, stream);
  shape.insert(shape.end(), x.shape().end() - 2, x.shape().end());
  // Only before it is broadcast is a row's inputs' lying side by side worth a copy.
  const auto rows = mx::contiguous(mx::astype(x, mx::float32, stream), false, stream);
  std::vector<mx::array> inputs{mx::broadcast_to(rows, shape, stream), mx::contiguous(experts, false, stream)};
  for (auto& each : weights) inputs.push_back(mx::contiguous(each, false, stream));
  shape.back() = num_outputs;
  return mx::array(shape, mx::float32, std::make_shared<GatheredLinear>(stream, form, num_outputs), inputs);
}

mx::array gathered_quantized_linear(const mx::array& x, const mx::array& indices, const mx::array& words,
                                    const mx::array& scales, const mx::array& biases, int bits, int group,
                                    int num_outputs) {
  require(x.ndim() > 0 && scales.ndim() == 3 && x.shape(-1) == scales.shape(1) * group,
          "the inputs must be as many as the weights of an output");
  return gathered(x, indices, {words, scales, biases}, {bits, group, input_bytes()}, num_outputs);
}

mx::array gathered_dense_linear(const mx::array& x, const mx::array& indices, const mx::array& values,
                                int num_outputs) {
  require(is_dense_type(values.dtype()), "the weights must be float32, float16 or bfloat16");
  require(values.ndim() == 3 && values.shape(2) == kLanes && values.shape(1) % kBlock == 0 &&
              values.shape(0) % tiles_of(num_outputs) == 0,
          "the weights must be [experts * tiles, K, 16], with K of whole blocks");
  require(x.ndim() > 0 && (x.shape(-1) + kBlock - 1) / kBlock * kBlock == values.shape(1),
          "the inputs must be as many as the weights of an output");
  return gathered(x, indices, {values}, {}, num_outputs);
}

}  // namespace

void bind_gather(nb::module_& m) {
  m.def("gathered_quantized_linear", &gathered_quantized_linear, nb::arg("x"), nb::arg("indices"), nb::arg("words"),
        nb::arg("scales"), nb::arg("biases"), nb::kw_only(), nb::arg("bits"), nb::arg("group_size"),
        nb::arg("num_outputs"));
  m.def("gathered_dense_linear", &gathered_dense_linear, nb::arg("x"), nb::arg("indices"), nb::arg("values"),
        nb::kw_only(), nb::arg("num_outputs"));
}

}  // namespace mtplx
