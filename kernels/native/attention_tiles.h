// The inner loops of attention: some rows against a chunk of keys and values. Knows no sequence and no thread.
//
// A row here is one query head at one position; rows of a tile share every load of a key or a value. Each score is
// Σ q·k from the first element on, each output Σ p·v from the first key on, in one multiply-add a step: no sum crosses
// lanes, and neither the tile nor the block that a row is in changes its bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "exponential.h"
#include "half.h"
#include "key_tiles.h"
#include "simd.h"
#include "tail.h"

namespace mtplx {

constexpr int kChunk = 128;    // keys whose exponentials and products with values are summed apart
constexpr int kKeyBlock = 64;  // keys turned around at a time: [D][64] of the usual sizes stay in the nearest cache
constexpr int kAhead = 64;     // keys or values: what one core waits for memory would otherwise add to what it computes
constexpr int kTileRows = kRegisters >= 32 ? 12 : 6;

// As many vectors for the rows of a tile as keep their sums in half to three quarters of the registers.
constexpr int tile_vectors(int rows) { return kRegisters >= 32 && rows <= 6 ? 4 : 2; }

// Calls `visit` with a value of 1 … Max as a constant.
template <int Max, typename Visit>
inline void with_constant(int value, Visit visit) {
  if constexpr (Max > 1)
    if (value < Max) return with_constant<Max - 1>(value, visit);
  visit(std::integral_constant<int, Max>{});
}

// Calls `visit(first, length)` for parts of `count` vectors: Most of them while that many are left, then fewer.
template <int Most, typename Visit>
inline void split_vectors(int count, Visit visit) {
  int first = 0;
  constexpr std::integral_constant<int, Most> most;
  for (; count - first >= most; first += most) visit(first, most);
  if constexpr (Most > 2)
    for (; count - first >= 2; first += 2) visit(first, std::integral_constant<int, 2>{});
  for (; first < count; first++) visit(first, std::integral_constant<int, 1>{});
}

// Where lanes of b go into a, so that squares of `Step` change places across the diagonal.
template <int Step, int... Lane>
inline void swap_squares(vregister& a, vregister& b, std::integer_sequence<int, Lane...>) {
  constexpr int kCount = sizeof...(Lane);
  const vregister upper = __builtin_shufflevector(a, b, (Lane & Step ? kCount + Lane - Step : Lane)...);
  b = __builtin_shufflevector(a, b, (Lane & Step ? kCount + Lane : Lane + Step)...);
  a = upper;
}

// As many registers as one has lanes, [keys][lanes] to [lanes][keys].
template <int Step = kRegisterLanes / 2>
inline void transpose(vregister (&v)[kRegisterLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kRegisterLanes; i++)
    if (!(i & Step)) swap_squares<Step>(v[i], v[i + Step], std::make_integer_sequence<int, kRegisterLanes>{});
  if constexpr (Step > 1) transpose<Step / 2>(v);
}

constexpr int kMiddleCache = 2;  // as __builtin_prefetch has it

// Asks for `count` values of the key or value that lies kAhead of this one.
template <typename Element>
inline __attribute__((always_inline)) void fetch_ahead(const Element* from, int size, int count) {
  constexpr int kLine = 64 / sizeof(Element);
  for (int i = 0; i < count; i += kLine) __builtin_prefetch(from + kAhead * size + i, 0, kMiddleCache);
}

// Keys [end - begin][size], which are [begin, end) of a block, to tiles [kKeyBlock / 16][size][16]. Vectors that hold one of
// them are filled up with copies.
template <typename Element>
inline void turn_keys(const Element* keys, int begin, int end, int size, float* to) {
  const int first = begin / kLanes * kLanes, last = (end + kLanes - 1) / kLanes * kLanes;
  constexpr int kCount = kRegisterLanes;
  for (int key = first; key < last; key += kCount) {
    const Element* from[kCount];
    for (int i = 0; i < kCount; i++) from[i] = keys + int64_t(std::clamp(key + i, begin, end - 1) - begin) * size;
    for (int i = 0; i < kCount; i++) fetch_ahead(from[i], size, size);
    float* const tile = to + key_place(key, size);
    int d = 0;
    for (; d + kCount <= size; d += kCount) {
      vregister v[kCount];
#pragma GCC unroll 16
      for (int i = 0; i < kCount; i++) read(from[i] + d, v[i]);
      transpose(v);
#pragma GCC unroll 16
      for (int i = 0; i < kCount; i++) store(tile + (d + i) * kTileKeys, v[i]);
    }
    for (; d < size; d++)
      for (int i = 0; i < kCount; i++) tile[d * kTileKeys + i] = float(from[i][d]);
  }
}

// Scores [Rows][kChunk] of queries [size][Rows] with Vectors registers of keys, in tiles from the first one's on. Where
// it `fetches`, asks for the keys a block ahead meanwhile: one core waits for keys longer than it computes with them.
template <int Rows, int Vectors, bool Fetches, typename Element>
inline void score_tile(const float* queries, const Element* keys, int size, float* scores) {
  vregister total[Rows][Vectors] = {};
  for (int d = 0; d < size; d++, queries += Rows, keys += kTileKeys) {
    vregister k[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) read(keys + key_place(v * kRegisterLanes, size), k[v]);
    if constexpr (Fetches)
      for (int v = 0; v < Vectors; v++)
        __builtin_prefetch(keys + key_place(kKeyBlock + v * kRegisterLanes, size), 0, kMiddleCache);
#pragma GCC unroll 12
    for (int row = 0; row < Rows; row++)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; v++) total[row][v] += queries[row] * k[v];
  }
#pragma GCC unroll 12
  for (int row = 0; row < Rows; row++)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) store(scores + row * kChunk + v * kRegisterLanes, total[row][v]);
}

// Adds Σ weight·value over `count` keys: weights [Rows][kChunk], values [count][size], to sums [Rows][stride], in
// Vectors registers of columns. `take(from, to)` reads a register of values.
template <int Rows, int Vectors, typename Element, typename Take>
inline void weigh_tile(const float* weights, const Element* values, int count, int size, float* sums, int stride,
                       Take take) {
  vregister total[Rows][Vectors];
#pragma GCC unroll 12
  for (int row = 0; row < Rows; row++)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) total[row][v] = load<vregister>(sums + row * stride + v * kRegisterLanes);
  for (int key = 0; key < count; key++, values += size) {
    vregister value[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) take(values + v * kRegisterLanes, value[v]);
    fetch_ahead(values, size, Vectors * kRegisterLanes);
#pragma GCC unroll 12
    for (int row = 0; row < Rows; row++)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; v++) total[row][v] += weights[row * kChunk + key] * value[v];
  }
#pragma GCC unroll 12
  for (int row = 0; row < Rows; row++)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) store(sums + row * stride + v * kRegisterLanes, total[row][v]);
}

// weigh_tile over all columns of the values.
template <int Rows, typename Element>
inline void weigh_columns(const float* weights, const Element* values, int count, int size, float* sums, int stride) {
  split_vectors<tile_vectors(Rows)>(size / kRegisterLanes, [&](int first, auto vectors) {
    const int column = first * kRegisterLanes;
    weigh_tile<Rows, vectors>(weights, values + column, count, size, sums + column, stride,
                              [](const Element* from, vregister& to) { read(from, to); });
  });
  if (const int tail = size % kRegisterLanes; tail != 0) {
    const int column = size - tail;
    weigh_tile<Rows, 1>(weights, values + column, count, size, sums + column, stride,
                        [tail](const Element* from, vregister& to) {
                          to = vregister{};
                          for (int i = 0; i < tail; i++) to[i] = float(from[i]);
                        });
  }
}

// Keys [begin, end) of a chunk that a row sees; none if end ≤ begin.
struct Visible {
  int begin, end;
  bool any() const { return begin < end; }
};

inline vregister soften(vregister scores, float softcap) { return softcap * hyperbolic_tangent(scores * (1 / softcap)); }

// Makes final one row's scores of a chunk: soft-capped, and -∞ beside what the row sees. Returns the greatest.
inline float finish_scores(float* scores, const Visible& keys, float softcap) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const int first = keys.begin / kLanes * kLanes, last = (keys.end + kLanes - 1) / kLanes * kLanes;
  std::fill(scores + first, scores + keys.begin, kNone);
  std::fill(scores + keys.end, scores + last, kNone);
  vregister most = fill_register(kNone);
  for (int key = first; key < last; key += kRegisterLanes) {
    vregister v = load<vregister>(scores + key);
    if (softcap != 0) {
      v = v == kNone ? v : soften(v, softcap);
      store(scores + key, v);
    }
    most = v > most ? v : most;
  }
  return greatest(most);
}

// Scores to exp(score - greatest), 0 beside what the row sees. Returns their sum.
inline float exponentiate(float* scores, const Visible& keys, float greatest) {
  const int first = keys.begin / kLanes * kLanes, last = (keys.end + kLanes - 1) / kLanes * kLanes;
  LaneSums total;
  for (int key = first; key < last; key += kLanes)
    for (int i = 0; i < kRegistersPerVector; i++) {
      float* const at = scores + key + i * kRegisterLanes;
      const vregister weight = exponential(load<vregister>(at) - greatest);
      store(at, weight);
      total.registers[i] += weight;
    }
  return total.sum();
}

}  // namespace mtplx
