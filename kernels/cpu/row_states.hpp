// Running softmax states of a block of rows, and how two of them become one.
#pragma once

#include <cstdint>
#include <limits>

namespace kvpool::kernels {

/// Not normalised: acc = sum of exp(s - max) * v, sum = sum of exp(s - max).
struct RowStates {
  float* acc;  ///< [rows][stride]
  float* max;  ///< [rows]
  float* sum;  ///< [rows]
  std::int64_t stride;

  static constexpr std::int64_t floats(std::int64_t rows, std::int64_t stride) noexcept { return rows * (stride + 2); }

  static RowStates at(float* memory, std::int64_t rows, std::int64_t stride) noexcept {
    return {memory, memory + rows * stride, memory + rows * (stride + 1), stride};
  }
};

/// Row r of `total` becomes that of `part`.
void copy_row(const RowStates& part, const RowStates& total, std::int64_t r) noexcept;

/// Row r of `total` takes in that of `part`, whose keys come after its own. Neither may be without keys.
void fold_row(const RowStates& part, const RowStates& total, std::int64_t r) noexcept;

/// (O, LSE) of a and b joined into `out`; empty parts have LSE -infinity. out may be a. Returns the joint LSE.
float merge_row(const float* a, float lse_a, const float* b, float lse_b, float* out, std::int64_t dim) noexcept;

}  // namespace kvpool::kernels
