// Rows of a quantized embedding, laid out as MLX does: an output's weights side by side, their bits without a gap. Knows
// memory layout and arithmetic; knows no MLX.
#pragma once

#include <cstdint>

namespace mtplx {

struct EmbeddingTable {
  const uint32_t* words;  // [V][size · bits / 32]
  const float* scales;    // [V][size / group]
  const float* biases;    // [V][size / group]
  int bits, group, size;
};

// Row `token`, to out [size].
inline void embed(const EmbeddingTable& table, int64_t token, float* out) {
  const uint32_t* words = table.words + token * (int64_t(table.size) * table.bits / 32);
  const int64_t first_group = token * (table.size / table.group);
  const uint32_t mask = (1u << table.bits) - 1;
  for (int k = 0; k < table.size; k++) {
    const int word = k * table.bits / 32, shift = k * table.bits % 32;
    uint32_t value = words[word] >> shift;
    if (shift + table.bits > 32) value |= words[word + 1] << (32 - shift);
    const int64_t group = first_group + k / table.group;
    out[k] = float(value & mask) * table.scales[group] + table.biases[group];
  }
}

}  // namespace mtplx
