// A row register by register; at its end, fewer values than a register holds may be left. A value's bits don't depend on
// where it stands, nor on how wide registers are.
#pragma once

#include <algorithm>

#include "simd.h"

namespace mtplx {

// `count` values, and zeros in the other lanes.
inline __attribute__((always_inline)) vregister load_first(const float* from, int count) {
  if (count == kRegisterLanes) return load<vregister>(from);
  vregister v = {};
  std::memcpy(&v, from, count * sizeof(float));
  return v;
}

inline __attribute__((always_inline)) void store_first(float* to, const vregister& v, int count) {
  if (count == kRegisterLanes) return store(to, v);
  std::memcpy(to, &v, count * sizeof(float));
}

// Calls `step(first, count)` for each register of [0, n): count is a constant for all but the last.
template <typename Step>
inline __attribute__((always_inline)) void for_each_register(int n, Step step) {
  int i = 0;
  for (; i + kRegisterLanes <= n; i += kRegisterLanes) step(i, kRegisterLanes);
  if (i < n) step(i, n - i);
}

// A sum of vectors of 16 lanes, register by register.
struct LaneSums {
  vregister registers[kRegistersPerVector] = {};

  LaneSums operator+(const LaneSums& other) const {
    LaneSums result;
    for (int i = 0; i < kRegistersPerVector; i++) result.registers[i] = registers[i] + other.registers[i];
    return result;
  }

  float sum() const { return mtplx::sum(load<vfloat>(registers)); }
};

// Σ term(first, count) over the registers of [0, n), in four sums of 16 lanes that take turns: a chain of additions would
// wait for each other.
template <typename Term>
inline __attribute__((always_inline)) float sum_of_registers(int n, Term term) {
  LaneSums totals[4];
  int i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4 * kRegistersPerVector; j++)
      totals[j / kRegistersPerVector].registers[j % kRegistersPerVector] += term(i + j * kRegisterLanes, kRegisterLanes);
  for (int j = 0; i < n; i += kRegisterLanes, j++)
    totals[j / kRegistersPerVector].registers[j % kRegistersPerVector] += term(i, std::min(n - i, kRegisterLanes));
  return ((totals[0] + totals[1]) + (totals[2] + totals[3])).sum();
}

}  // namespace mtplx
