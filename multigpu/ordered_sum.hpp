// Sums over ranks in one fixed order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvpool::multigpu {

/// out[i] = parts[0][i] + parts[1][i] + ..., added along the tree of SumOrder::fixed_tree. All parts
/// and `out` have `count` elements; `out` may be one of the parts. O(parts x count).
void tree_sum(std::span<const float* const> parts, float* out, std::size_t count);

/// The same for bfloat16 bit patterns: widened, added in fp32, rounded once to nearest even.
void tree_sum(std::span<const std::uint16_t* const> parts, std::uint16_t* out, std::size_t count);

}  // namespace kvpool::multigpu
