// The inner loop, once per instruction set: each includes this file in a translation unit with its own flags.
// Only raw pointers here: an inline function of a library, compiled with wider instructions, could be the copy
// that the linker keeps for everybody.
#pragma once

#include <cstdint>

namespace kvpool::launch::row_product_kernel {

struct Panel {
  const float* x;
  std::int64_t rows;
  std::int64_t x_stride;
  const float* w;  ///< [inner][32]
  std::int64_t inner;
  std::int64_t segment;
  float* y;
  std::int64_t y_stride;
  std::int64_t columns;  ///< valid ones of the 32
};

void run_generic(const Panel& panel) noexcept;
void run_avx2(const Panel& panel) noexcept;
void run_avx512(const Panel& panel) noexcept;

namespace {

constexpr unsigned kPanelColumns = 32;
constexpr unsigned kMaxTreeLevels = 16;

/// Lanes: floats per vector register; Rows: rows computed together.
template <unsigned Lanes, unsigned Rows>
void run_tile(const Panel& panel, std::int64_t first_row) {
  typedef float Vec __attribute__((vector_size(Lanes * 4)));
  typedef float Unaligned __attribute__((vector_size(Lanes * 4), aligned(4), may_alias));
  constexpr unsigned kVecs = kPanelColumns / Lanes;
  Vec pending[kMaxTreeLevels][Rows][kVecs];
  unsigned depth = 0;
  const float* x = panel.x + first_row * panel.x_stride;
  std::int64_t leaves = 0;
  for (std::int64_t begin = 0; begin < panel.inner; begin += panel.segment) {
    Vec sum[Rows][kVecs] = {};
    for (std::int64_t k = begin; k < begin + panel.segment; ++k) {
      const float* w = panel.w + k * kPanelColumns;
      for (unsigned v = 0; v < kVecs; ++v) {
        const Vec column = *reinterpret_cast<const Unaligned*>(w + v * Lanes);
        for (unsigned r = 0; r < Rows; ++r) sum[r][v] = sum[r][v] + x[r * panel.x_stride + k] * column;
      }
    }
    // Like a binary counter: two finished sums of the same size are joined at once, the left one first.
    ++leaves;
    for (std::int64_t bit = leaves; (bit & 1) == 0; bit >>= 1) {
      --depth;
      for (unsigned r = 0; r < Rows; ++r) {
        for (unsigned v = 0; v < kVecs; ++v) sum[r][v] = pending[depth][r][v] + sum[r][v];
      }
    }
    for (unsigned r = 0; r < Rows; ++r) {
      for (unsigned v = 0; v < kVecs; ++v) pending[depth][r][v] = sum[r][v];
    }
    ++depth;
  }
  while (depth > 1) {
    --depth;
    for (unsigned r = 0; r < Rows; ++r) {
      for (unsigned v = 0; v < kVecs; ++v) pending[depth - 1][r][v] = pending[depth - 1][r][v] + pending[depth][r][v];
    }
  }
  for (unsigned r = 0; r < Rows; ++r) {
    float* y = panel.y + (first_row + r) * panel.y_stride;
    for (unsigned c = 0; c < panel.columns; ++c) y[c] = pending[0][r][c / Lanes][c % Lanes];
  }
}

template <unsigned Lanes, unsigned Rows>
void run_panel(const Panel& panel) {
  std::int64_t row = 0;
  for (; row + Rows <= panel.rows; row += Rows) run_tile<Lanes, Rows>(panel, row);
  for (; row < panel.rows; ++row) run_tile<Lanes, 1>(panel, row);
}

}  // namespace
}  // namespace kvpool::launch::row_product_kernel
