// Vectors of 16 lanes by the compiler's vector extensions: one source for AVX-512, AVX2 and NEON; and the widest vectors
// that are one register.
//
// The compiler splits a vector of 16 lanes into as many registers as the machine needs. GCC 12 keeps those in memory where
// many are at work: there, registers must be named. A lane never meets another here, so a result has the same bits on
// every machine that multiplies and adds in one step.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

namespace mtplx {

constexpr int kLanes = 16;

typedef float vfloat __attribute__((vector_size(4 * kLanes)));
typedef int32_t vint __attribute__((vector_size(4 * kLanes)));
typedef int8_t vbyte __attribute__((vector_size(kLanes)));

#if defined(__AVX512F__) || defined(__ARM_NEON)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif
#if defined(__AVX512F__)
constexpr int kRegistersPerVector = 1;
#elif defined(__AVX2__)
constexpr int kRegistersPerVector = 2;
#else
constexpr int kRegistersPerVector = 4;
#endif

constexpr int kRegisterLanes = kLanes / kRegistersPerVector;

typedef float vregister __attribute__((vector_size(4 * kRegisterLanes)));
typedef int32_t iregister __attribute__((vector_size(4 * kRegisterLanes)));
typedef uint32_t uregister __attribute__((vector_size(4 * kRegisterLanes)));
typedef int16_t hregister __attribute__((vector_size(4 * kRegisterLanes)));

template <typename Vector, typename Scalar>
inline Vector load(const Scalar* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <typename Vector, typename Scalar>
inline void store(Scalar* to, const Vector& v) {
  std::memcpy(to, &v, sizeof v);
}

// Into the outer caches, in time for a later load. Any address will do: one that is not there is let be. A call that is not
// inlined at once has no effect that GCC knows of, and may be left out.
inline __attribute__((always_inline)) void prefetch(const void* address) { __builtin_prefetch(address, 0, 1); }

// A register with the same in all lanes. `vregister{} + x` would be a real addition, since 0 + -0 is 0.
template <int... Lane>
inline vregister fill_register(float x, std::integer_sequence<int, Lane...>) {
  return vregister{(static_cast<void>(Lane), x)...};
}
inline vregister fill_register(float x) { return fill_register(x, std::make_integer_sequence<int, kRegisterLanes>{}); }

inline iregister fill_register(int32_t x) { return iregister{} + x; }

inline vregister to_float(iregister v) { return __builtin_convertvector(v, vregister); }

// To the nearest whole number, the one farther from 0 of two; for |v| < 2^23.
inline iregister round(vregister v) { return __builtin_convertvector(v + (v < 0 ? -0.5f : 0.5f), iregister); }

template <int First, typename Vector, int... Lane>
inline auto lanes_from(const Vector& v, std::integer_sequence<int, Lane...>) {
  return __builtin_shufflevector(v, v, (First + Lane)...);
}

// All lanes made one by `join`, in a fixed order, halves first: part of what defines a result's bits.
template <typename Vector, typename Join>
inline auto join_lanes(const Vector& v, Join join) {
  constexpr int kHalf = sizeof(v) / sizeof(v[0]) / 2;
  if constexpr (kHalf == 1) {
    return join(v[0], v[1]);
  } else {
    const std::make_integer_sequence<int, kHalf> half;
    return join_lanes(join(lanes_from<0>(v, half), lanes_from<kHalf>(v, half)), join);
  }
}

template <typename Vector>
inline auto sum(const Vector& v) {
  return join_lanes(v, [](auto a, auto b) { return a + b; });
}

template <typename Vector>
inline auto greatest(const Vector& v) {
  return join_lanes(v, [](auto a, auto b) { return a > b ? a : b; });
}

}  // namespace mtplx
