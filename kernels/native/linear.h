// Products with quantized weights. Knows memory layout and arithmetic; knows no MLX.
//
// Layout: of every 32 weights of an output, its `bits` words stand in one lane of its tile: words
// [tiles][K / 32][bits][16], and some bytes more that mean nothing; scales and biases [tiles][K / group][16].
//
// Arithmetic: t = Σ q·x over a group, then y += scale·t and y += bias·Σx. With rows of whole numbers the sums are exact.
#pragma once

#include "dot.h"
#include "products.h"

namespace mtplx {

struct QuantizedWeights {
  const uint32_t* words;
  const float* scales;
  const float* biases;
  int bits;
  int group;
  int num_inputs;
  int num_outputs;

  int num_tiles() const { return tiles_of(num_outputs); }
  int num_groups() const { return num_inputs / group; }
  int64_t tile_words() const { return int64_t(num_inputs) / kBlock * bits * kLanes; }
};

struct Projection {
  QuantizedWeights weights;
  const float* bias;  // [num outputs] or null
};

// The number in the low `Bits` bits of every lane.
template <int Bits>
inline vregister number_of(uregister lanes) {
#if defined(__AVX512F__) && !defined(__clang__)
  // One look-up, by the low four bits, is quicker than masking and converting.
  if constexpr (Bits <= 4) {
    constexpr auto at = [](int i) { return float(i & ((1 << Bits) - 1)); };
    constexpr vregister numbers = {at(0), at(1), at(2),  at(3),  at(4),  at(5),  at(6),  at(7),
                                at(8), at(9), at(10), at(11), at(12), at(13), at(14), at(15)};
    return __builtin_shuffle(numbers, reinterpret_cast<iregister>(lanes));
  }
#endif
  return to_float(reinterpret_cast<iregister>(lanes & ((1u << Bits) - 1)));
}

// Weight I of 32 in the low bits of every lane, out of the lane's `Bits` words. May read three bytes beyond them.
template <int Bits, int I>
inline uregister unpack(const uint32_t* words) {
  constexpr int word = I * Bits / 32, shift = I * Bits % 32;
  if constexpr (shift % 8 + Bits > 8) {
    uregister value = load<uregister>(words + word * kLanes) >> shift;
    if constexpr (shift + Bits > 32) value |= load<uregister>(words + (word + 1) * kLanes) << (32 - shift);
    return value;
  }
  // Loading from some bytes on is a shift for nothing: only the low bits of a lane count.
  return load<uregister>(reinterpret_cast<const char*>(words + word * kLanes) + shift / 8) >> (shift % 8);
}

// A group's scales and biases for the outputs of a slice.
struct QuantizedGroup {
  vregister scale, bias;

  QuantizedGroup(const QuantizedWeights& weights, int tile, int lane, int g) {
    const int64_t at = place(weights, tile, g) + lane;
    scale = load<vregister>(weights.scales + at), bias = load<vregister>(weights.biases + at);
  }

  static inline __attribute__((always_inline)) void fetch(const QuantizedWeights& weights, int64_t tile, int g) {
    prefetch(weights.scales + place(weights, tile, g));
    prefetch(weights.biases + place(weights, tile, g));
  }

  static int64_t place(const QuantizedWeights& weights, int64_t tile, int g) {
    return (tile * weights.num_groups() + g) * kLanes;
  }

  void add(const vregister& t, const RowBlock& block, int at, vregister& y) const {
    y += scale * t;
    y += bias * fill_register(block.sums[at]);
  }

  // Of whole numbers.
  template <typename Sum>
  void add(const Sum& t, const RowBlock& block, int at, vregister& y) const {
    y += scale * fill_register(block.scales[at]) * t.number();
    y += bias * fill_register(block.sums[at]);
  }
};

template <int Bits>
struct QuantizedWords {
  using Weights = QuantizedWeights;
  using Group = QuantizedGroup;
  using Unit = uint32_t;
  static constexpr int kBlockUnits = Bits * kLanes;

  static const Unit* tile(const Weights& weights, int i) { return weights.words + i * weights.tile_words(); }
  static int blocks(const Weights& weights) { return weights.group / kBlock; }
};

// For rows of floats.
template <int Bits>
struct QuantizedSource : QuantizedWords<Bits> {
  using Input = float;
  using Weight = vregister;
  using Value = vregister;
  using Sum = vregister;
  static constexpr int kBlockInputs = kBlock, kSteps = kBlock, kSums = 1;

  template <int I>
  static vregister weight(const uint32_t* block) {
    return number_of<Bits>(unpack<Bits, I>(block));
  }

  template <int I>
  static vregister input(const float* x) {
    return fill_register(x[I]);
  }

  static void add(const vregister& w, const vregister& x, vregister& t) { t += w * x; }
  static void end_block(vregister&) {}
};

// For rows of whole numbers of so many bytes: four weights a step, in the order of RowForm{Bytes, Order}.
template <int Bits, int Order, int Bytes>
struct WholeSource : QuantizedWords<Bits> {
  using Input = int32_t;
  using Weight = iregister;
  using Value = ByteVectors<Bytes>;
  using Sum = ByteSums<Bytes, Bits <= 4>;
  static constexpr int kSteps = kBlock / 4, kBlockInputs = kSteps * Bytes, kSums = Bytes;

  template <int I>
  static iregister weight(const uint32_t* block) {
    uregister bytes;
    if constexpr (Bits == 8) {
      bytes = load<uregister>(block + I * kLanes);
    } else if constexpr (Order == 4 && Bits == 4) {
      bytes = (load<uregister>(block + I / 2 * kLanes) >> (I % 2 * 4)) & 0x0f0f0f0fu;
    } else if constexpr (Order == 2 && Bits == 2) {
      bytes = (load<uregister>(block + I / 4 * kLanes) >> (I % 4 * 2)) & 0x03030303u;
    } else {
      constexpr uint32_t mask = (1u << Bits) - 1;
      bytes = unpack<Bits, 4 * I>(block) & mask;
      bytes |= (unpack<Bits, 4 * I + 1>(block) & mask) << 8;
      bytes |= (unpack<Bits, 4 * I + 2>(block) & mask) << 16;
      bytes |= (unpack<Bits, 4 * I + 3>(block) & mask) << 24;
    }
    return reinterpret_cast<iregister>(bytes);
  }

  template <int I>
  static ByteVectors<Bytes> input(const int32_t* x) {
    ByteVectors<Bytes> values;
    for (int i = 0; i < Bytes; i++) values.bytes[i] = fill_register(x[i * kSteps + I]);
    return values;
  }

  static void add(const iregister& w, const Value& x, Sum& t) {
    for (int i = 0; i < Bytes; i++) add_dots<Bits < 8>(w, x.bytes[i], t.bytes[i]);
  }

  static void end_block(Sum& t) { t.end_block(); }
};

// For rows of whole numbers of 16 bits in one piece: two weights a step, in the order of RowForm{2, Order}.
template <int Bits, int Order>
struct PairSource : QuantizedWords<Bits> {
  using Input = int32_t;
  using Weight = iregister;
  using Value = iregister;
  using Sum = PairSum;
  static constexpr int kSteps = kBlock / 2, kBlockInputs = kSteps, kSums = 1;

  template <int I>
  static iregister weight(const uint32_t* block) {
    constexpr uint32_t mask = (1u << Bits) - 1;
    uregister pairs;
    if constexpr (Order == Bits && 16 % Bits == 0) {
      constexpr int steps = 16 / Bits;  // of a word
      pairs = (load<uregister>(block + I / steps * kLanes) >> (I % steps * Bits)) & (mask << 16 | mask);
    } else {
      pairs = unpack<Bits, 2 * I>(block) & mask;
      pairs |= (unpack<Bits, 2 * I + 1>(block) & mask) << 16;
    }
    return reinterpret_cast<iregister>(pairs);
  }

  template <int I>
  static iregister input(const int32_t* x) {
    return fill_register(x[I]);
  }

  static void add(const iregister& w, const iregister& x, Sum& t) { add_now(multiply_pairs(w, x), t.sum); }
  static void end_block(Sum&) {}
};

RunKernel<QuantizedWeights> find_kernel(const QuantizedWeights& weights, RowForm form, int rows, bool single_tile);

}  // namespace mtplx
