#include "tools/launch/model/row_product.hpp"

#include <algorithm>

#include "tools/launch/model/row_product_kernel.hpp"

namespace kvpool::launch {

std::string_view to_string(RowProductTier tier) noexcept {
  switch (tier) {
    case RowProductTier::avx512: return "avx512";
    case RowProductTier::avx2: return "avx2";
    case RowProductTier::generic: break;
  }
  return "generic";
}

bool is_supported(RowProductTier tier) noexcept {
#if defined(__x86_64__)
  switch (tier) {
    case RowProductTier::avx512: return __builtin_cpu_supports("avx512f") != 0;
    case RowProductTier::avx2: return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    case RowProductTier::generic: return true;
  }
#endif
  return tier == RowProductTier::generic;
}

RowProductTier best_row_product_tier() noexcept {
  for (const RowProductTier tier : {RowProductTier::avx512, RowProductTier::avx2}) {
    if (is_supported(tier)) return tier;
  }
  return RowProductTier::generic;
}

PackedMatrix::PackedMatrix(std::int64_t inner, std::int64_t outer, CountingAllocator* counter)
    : inner_(inner),
      outer_(outer),
      values_(static_cast<std::size_t>((outer + kPanel - 1) / kPanel * kPanel * inner), 0.0F,
              CountedAllocator<float>(counter)) {}

void row_product(RowProductTier tier, const RowProductArguments& arguments) noexcept {
  const PackedMatrix& matrix = *arguments.matrix;
  constexpr std::int64_t kRowBlock = 64;  // rows of x stay in the second-level cache while the panels pass
  for (std::int64_t row = 0; row < arguments.rows; row += kRowBlock) {
    row_product_kernel::Panel panel{};
    panel.x = arguments.x + row * arguments.x_stride;
    panel.rows = std::min(kRowBlock, arguments.rows - row);
    panel.x_stride = arguments.x_stride;
    panel.inner = matrix.inner();
    panel.segment = arguments.segment;
    panel.y_stride = arguments.y_stride;
    for (std::int64_t column = 0; column < matrix.outer(); column += PackedMatrix::kPanel) {
      panel.w = matrix.panel(column / PackedMatrix::kPanel);
      panel.y = arguments.y + row * arguments.y_stride + column;
      panel.columns = std::min(PackedMatrix::kPanel, matrix.outer() - column);
      switch (tier) {
        case RowProductTier::avx512: row_product_kernel::run_avx512(panel); break;
        case RowProductTier::avx2: row_product_kernel::run_avx2(panel); break;
        case RowProductTier::generic: row_product_kernel::run_generic(panel); break;
      }
    }
  }
}

}  // namespace kvpool::launch
