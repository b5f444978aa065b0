// Matrix product, row by row: what a row's result is does not depend on the rows beside it.
//
// Every output element is a sum over the inner dimension in ascending order, cut into segments; the segments'
// sums are added by one fixed binary tree (neighbours first). With one head per segment this is the tree over
// heads that makes sums over ranks reproducible.
#pragma once

#include <cstdint>
#include <string_view>

#include "tools/launch/model/counted_memory.hpp"

namespace kvpool::launch {

/// Instruction sets with their own inner loop. Results are the same within a tier for any batch; tiers differ
/// in the last bit, since only some fuse multiplication and addition.
enum class RowProductTier { generic, avx2, avx512 };

[[nodiscard]] std::string_view to_string(RowProductTier tier) noexcept;
[[nodiscard]] bool is_supported(RowProductTier tier) noexcept;
[[nodiscard]] RowProductTier best_row_product_tier() noexcept;

/// A matrix [inner][outer] stored in panels of kPanel columns, zero-padded at the right edge.
class PackedMatrix {
 public:
  static constexpr std::int64_t kPanel = 32;  ///< columns

  PackedMatrix() = default;
  /// `counter` may be null: the memory is then not counted.
  PackedMatrix(std::int64_t inner, std::int64_t outer, CountingAllocator* counter = nullptr);

  [[nodiscard]] std::int64_t inner() const noexcept { return inner_; }
  [[nodiscard]] std::int64_t outer() const noexcept { return outer_; }
  [[nodiscard]] float& at(std::int64_t row, std::int64_t column) noexcept { return values_[offset(row, column)]; }
  [[nodiscard]] float at(std::int64_t row, std::int64_t column) const noexcept { return values_[offset(row, column)]; }
  [[nodiscard]] const float* panel(std::int64_t index) const noexcept {
    return values_.data() + index * inner_ * kPanel;
  }
  [[nodiscard]] std::int64_t size_bytes() const noexcept { return static_cast<std::int64_t>(values_.size()) * 4; }

 private:
  [[nodiscard]] std::size_t offset(std::int64_t row, std::int64_t column) const noexcept {
    return static_cast<std::size_t>((column / kPanel * inner_ + row) * kPanel + column % kPanel);
  }
  std::int64_t inner_ = 0;
  std::int64_t outer_ = 0;
  CountedFloats values_;
};

struct RowProductArguments {
  const float* x = nullptr;  ///< [rows][inner], rows `x_stride` elements apart
  std::int64_t rows = 0;
  std::int64_t x_stride = 0;
  const PackedMatrix* matrix = nullptr;
  std::int64_t segment = 0;  ///< elements of the inner dimension per leaf of the tree; divides inner
  float* y = nullptr;        ///< [rows][outer], rows `y_stride` elements apart; overwritten
  std::int64_t y_stride = 0;
};

/// Precondition: the tier is supported; at most 2^15 segments. O(rows * inner * outer).
void row_product(RowProductTier tier, const RowProductArguments& arguments) noexcept;

}  // namespace kvpool::launch
