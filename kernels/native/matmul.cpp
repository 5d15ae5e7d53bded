// Products of any two matrices as an MLX primitive, which has gradients.
#include "matmul.h"

#include <nanobind/nanobind.h>

#include "matrix_arrays.h"
#include "mlx/backend/cpu/encoder.h"
#include "products.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

mx::array matrix_product(const mx::array& a, const mx::array& b);

mx::array transposed(const mx::array& a) { return mx::swapaxes(a, -1, -2, mx::default_stream(mx::Device::cpu)); }

// Of many products each member takes some; on few they all work together.
void multiply_arrays(const mx::array& a, const mx::array& b, mx::array& out) {
  const int m = a.shape(-2), k = a.shape(-1), n = b.shape(-1);
  const int64_t count = out.size() == 0 ? 0 : num_matrices(a);
  float* const c = out.data<float>();
  const auto multiply_one = [&](int64_t i, const Team& team, float* packed_a, float* packed_b) {
    multiply(matrix(a, i), matrix(b, i), m, n, k, false, c + i * m * n, n, team, packed_a, packed_b);
  };
  const bool is_shared = count < 2 * num_threads();
  const Floats shared = make_floats(is_shared ? packed_columns(n) : 0);
  run_in_parallel(count * m * n * k > kWorthSharing, [&](const Team& team) {
    const Floats packed_a = make_floats(kPackedRows);
    if (is_shared) {
      for (int64_t i = 0; i < count; i++) multiply_one(i, team, packed_a.get(), shared.get());
      return;
    }
    const Floats packed_b = make_floats(packed_columns(n));
    TeamState alone;
    team.share(count, [&](Team::Range range) {
      for (; range.begin < range.end; range.begin++)
        multiply_one(range.begin, Team(0, &alone), packed_a.get(), packed_b.get());
    });
  });
}

class Matmul : public CpuPrimitive {
 public:
  using CpuPrimitive::CpuPrimitive;

  // Inputs a [..., M, K] and b [..., K, N].
  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const auto& input : inputs) encoder.set_input_array(input);
    encoder.set_output_array(out);
    encoder.dispatch([a = mx::array::unsafe_weak_copy(inputs[0]), b = mx::array::unsafe_weak_copy(inputs[1]),
                      out = mx::array::unsafe_weak_copy(out)]() mutable { multiply_arrays(a, b, out); });
  }

  std::vector<mx::array> vjp(const std::vector<mx::array>& inputs, const std::vector<mx::array>& cotangents,
                             const std::vector<int>& wanted, const std::vector<mx::array>&) override {
    std::vector<mx::array> gradients;
    for (int input : wanted)
      gradients.push_back(input == 0 ? matrix_product(cotangents[0], transposed(inputs[1]))
                                     : matrix_product(transposed(inputs[0]), cotangents[0]));
    return gradients;
  }

  bool is_equivalent(const Primitive&) const override { return true; }

  const char* name() const override { return "NativeMatmul"; }
};

mx::array matrix_product(const mx::array& a, const mx::array& b) {
  require_float32(a), require_float32(b);
  require(a.ndim() >= 2 && a.ndim() == b.ndim() && a.shape(-1) == b.shape(-2) &&
              std::equal(a.shape().begin(), a.shape().end() - 2, b.shape().begin()),
          "the arrays must be [..., M, K] and [..., K, N]");
  auto shape = a.shape();
  shape.back() = b.shape(-1);
  return mx::array(shape, mx::float32, std::make_shared<Matmul>(mx::default_stream(mx::Device::cpu)), {a, b});
}

}  // namespace

void bind_matmul(nb::module_& m) { m.def("matmul", &matrix_product, nb::arg("a"), nb::arg("b")); }

}  // namespace mtplx
