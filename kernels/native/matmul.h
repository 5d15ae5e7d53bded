// Products of any two matrices, C = A B, in float32: hundreds of rows and more, for training. Knows arithmetic; knows no
// MLX.
//
// A and B lie anyhow: transposed ones are matrices with other steps. Both are packed into panels that the inner loop
// reads from end to end (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication"; BLIS): the rows of a
// panel of A side by side for each k, and the columns of a panel of B, filled up with zeros.
//
// Arithmetic of a value: t = Σ a·b over kDepth steps, one by one; C = t for the first of them, then C += t.
#pragma once

#include "half.h"
#include "parallel.h"
#include "rows.h"
#include "simd.h"
#include "transpose.h"

namespace mtplx {

// A panel's sums, with what they are made of, fill the registers. They are held as registers: GCC keeps wider vectors that
// it must split in memory.
constexpr int kPanelVectors = kRegisterLanes >= 8 ? 2 : 4;
constexpr int kPanelRows = kRegisters == 32 ? 24 / kPanelVectors : 12 / kPanelVectors;
constexpr int kPanelColumns = kPanelVectors * kRegisterLanes;

constexpr int kDepth = 384;                          // of packed panels: one of B fills the innermost cache at most
constexpr int kRowBlock = 96;                        // of packed A: whole panels, which stay in the second cache
constexpr int kColumnPanels = 1536 / kPanelColumns;  // of packed B, which all members read

struct Matrix {
  const float* data;
  int64_t row_step, column_step;

  const float* at(int64_t row, int64_t column) const { return data + row * row_step + column * column_step; }
  Matrix from(int64_t row, int64_t column) const { return {at(row, column), row_step, column_step}; }
  Matrix transposed() const { return {data, column_step, row_step}; }
};

constexpr int panels_of(int count, int each) { return (count + each - 1) / each; }

// The first `count` rows of a matrix, at most `Size`, as [depth][Size], filled up with zeros.
template <int Size>
void pack_panel(const Matrix& from, int count, int depth, float* to) {
  if (count == Size && from.row_step == 1) {
    for (int k = 0; k < depth; k++) std::copy_n(from.at(0, k), Size, to + k * Size);
  } else if (count == Size && from.column_step == 1) {
    int first = 0;
    if constexpr (Size % kLanes == 0)
      for (; first + kLanes <= depth; first += kLanes)
        for (int i = 0; i < Size; i += kLanes) {
          vfloat square[kLanes];
          for (int row = 0; row < kLanes; row++) square[row] = load<vfloat>(from.at(i + row, first));
          transpose(square);
          for (int k = 0; k < kLanes; k++) store(to + (first + k) * Size + i, square[k]);
        }
    for (int k = first; k < depth; k++)
#pragma GCC unroll 32
      for (int i = 0; i < Size; i++) to[k * Size + i] = from.data[i * from.row_step + k];
  } else {
    for (int k = 0; k < depth; k++)
      for (int i = 0; i < Size; i++) to[k * Size + i] = i < count ? *from.at(i, k) : 0.0f;
  }
}

// A panel of A times one of B, to the first rows and columns of a tile of C.
inline void multiply_panels(const float* a, const float* b, int depth, int rows, int columns, bool adds, float* c,
                            int64_t c_step) {
  vregister t[kPanelRows][kPanelVectors] = {};
  for (int k = 0; k < depth; k++, a += kPanelRows, b += kPanelColumns) {
    vregister values[kPanelVectors];
    for (int v = 0; v < kPanelVectors; v++) values[v] = load<vregister>(b + v * kRegisterLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kPanelRows; row++)
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; v++) t[row][v] += a[row] * values[v];
  }
  if (rows == kPanelRows && columns == kPanelColumns) {
#pragma GCC unroll 16
    for (int row = 0; row < kPanelRows; row++)
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; v++) {
        float* const to = c + row * c_step + v * kRegisterLanes;
        store(to, adds ? load<vregister>(to) + t[row][v] : t[row][v]);
      }
    return;
  }
  float tile[kPanelRows][kPanelColumns];
  std::memcpy(tile, t, sizeof tile);
  for (int row = 0; row < rows; row++)
    for (int i = 0; i < columns; i++) {
      float& to = c[row * c_step + i];
      to = adds ? to + tile[row][i] : tile[row][i];
    }
}

// Room for what a team's members pack of B, for products with so many columns, and for what each packs of A.
inline int64_t packed_columns(int columns) {
  return int64_t(std::min(panels_of(columns, kPanelColumns), kColumnPanels)) * kPanelColumns * kDepth;
}
constexpr int64_t kPackedRows = int64_t(kRowBlock) * kDepth;

// A block of B, kDepth by kColumnPanels panels at most, times all rows of A.
inline void multiply_block(const Matrix& a, const Matrix& b, int m, int n, int depth, bool adds, float* c,
                           int64_t c_step, const Team& team, float* packed_a, float* packed_b) {
  const int row_blocks = panels_of(m, kRowBlock), panels = panels_of(n, kPanelColumns);
  // Enough pieces for all members to be done at the same time; the fewer, the less often A is packed.
  const int wanted = team.size == 1 ? 1 : panels_of(4 * team.size, row_blocks);
  const int panels_each = panels_of(panels, std::min(wanted, panels)), pieces = panels_of(panels, panels_each);
  const auto part = team.part(panels);
  for (int64_t panel = part.begin; panel < part.end; panel++) {
    const int first = panel * kPanelColumns;
    pack_panel<kPanelColumns>(b.from(0, first).transposed(), std::min(kPanelColumns, n - first), depth,
                              packed_b + first * kDepth);
  }
  team.barrier();
  team.share(int64_t(row_blocks) * pieces, [&](Team::Range range) {
    for (int64_t piece = range.begin; piece < range.end; piece++) {
      const int first_row = piece / pieces * kRowBlock, rows = std::min(kRowBlock, m - first_row);
      for (int row = 0; row < rows; row += kPanelRows)
        pack_panel<kPanelRows>(a.from(first_row + row, 0), std::min(kPanelRows, rows - row), depth,
                               packed_a + row * kDepth);
      const int first_panel = piece % pieces * panels_each, end = std::min(first_panel + panels_each, panels);
      for (int panel = first_panel; panel < end; panel++) {
        const int column = panel * kPanelColumns, columns = std::min(kPanelColumns, n - column);
        for (int row = 0; row < rows; row += kPanelRows)
          multiply_panels(packed_a + row * kDepth, packed_b + column * kDepth, depth,
                          std::min(kPanelRows, rows - row), columns, adds,
                          c + (first_row + row) * c_step + column, c_step);
      }
    }
  });
  team.barrier();
}

// C [m, n] = A [m, k] B [k, n], or C += A B, by a team: `packed_b` is shared by its members, `packed_a` is this one's.
inline void multiply(const Matrix& a, const Matrix& b, int m, int n, int k, bool adds, float* c, int64_t c_step,
                     const Team& team, float* packed_a, float* packed_b) {
  constexpr int kColumns = kColumnPanels * kPanelColumns;
  for (int column = 0; column < n; column += kColumns)
    for (int at = 0; at < k; at += kDepth)
      multiply_block(a.from(0, at), b.from(at, column), m, std::min(kColumns, n - column), std::min(kDepth, k - at),
                     adds || at > 0, c + column, c_step, team, packed_a, packed_b);
  if (k == 0 && !adds)
    for (auto part = team.part(m); part.begin < part.end; part.begin++) std::fill_n(c + part.begin * c_step, n, 0.0f);
}

}  // namespace mtplx
