// Products with weights that are numbers: float32, float16 or bfloat16. Knows memory layout and arithmetic; knows no MLX.
//
// Layout: [tiles][K][16], K filled up with zeros to whole blocks of 32. Arithmetic: t = Σ w·x over a block, then y += t.
#pragma once

#include "half.h"
#include "products.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace mtplx {

enum class DenseType { kFloat32, kFloat16, kBFloat16 };

struct DenseWeights {
  const void* values;
  DenseType type;
  int num_inputs;  // with what fills up the last block
  int num_outputs;

  int num_tiles() const { return tiles_of(num_outputs); }
  int num_groups() const { return num_inputs / kBlock; }
};

// The upper half of a float32.
struct bfloat16 {
  uint16_t bits;
};

inline void read(const bfloat16* from, vregister& to) {
#ifdef __AVX512F__
  // GCC 12 widens a vector half by half; without a mask, it warns as in half.h.
  const auto widened = _mm512_maskz_cvtepu16_epi32(0xffff, load<__m256i>(from));
  to = reinterpret_cast<vregister>(reinterpret_cast<uregister>(widened) << 16);
#elif defined(__AVX2__)
  to = reinterpret_cast<vregister>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load<__m128i>(from)), 16));
#else
  typedef uint16_t vhalves __attribute__((vector_size(2 * kRegisterLanes)));
  to = reinterpret_cast<vregister>(__builtin_convertvector(load<vhalves>(from), uregister) << 16);
#endif
}

template <typename Scalar>
struct DenseSource {
  using Weights = DenseWeights;
  using Unit = Scalar;
  using Input = float;
  using Weight = vregister;
  using Value = vregister;
  using Sum = vregister;
  static constexpr int kBlockUnits = kBlock * kLanes, kBlockInputs = kBlock, kSteps = kBlock, kSums = 1;

  static const Unit* tile(const Weights& weights, int i) {
    return static_cast<const Unit*>(weights.values) + int64_t(i) * weights.num_inputs * kLanes;
  }
  static int blocks(const Weights&) { return 1; }

  template <int I>
  static vregister weight(const Unit* block) {
    vregister w;
    read(block + I * kLanes, w);
    return w;
  }

  struct Group {
    Group(const Weights&, int, int, int) {}
    static void fetch(const Weights&, int64_t, int) {}
    void add(const vregister& t, const RowBlock&, int, vregister& y) const { y += t; }
  };

  template <int I>
  static vregister input(const float* x) {
    return fill_register(x[I]);
  }

  static void add(const vregister& w, const vregister& x, vregister& t) { t += w * x; }
  static void end_block(vregister&) {}
};

RunKernel<DenseWeights> find_kernel(const DenseWeights& weights, RowForm form, int rows, bool single_tile);

}  // namespace mtplx
