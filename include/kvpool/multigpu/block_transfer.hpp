// Moving blocks between engines whose pools differ in size: ids go in pairs, each valid in its own pool.
#pragma once

#include <cstdint>
#include <span>

#include "kvpool/block/block_id.hpp"
#include "kvpool/foundation/error.hpp"

namespace kvpool {

struct BlockPair {
  BlockId source;
  BlockId destination;
};

/// Checks that every source id exists in a pool of source_blocks and every destination id in one of
/// destination_blocks (null block 0 excluded in both), and that no destination is written twice. The pools'
/// sizes need not be equal. `unknown_block` names pair, side, id and size; `invalid_argument` a double
/// destination. O(pairs log pairs).
[[nodiscard]] Status check_block_pairs(std::span<const BlockPair> pairs, std::int64_t source_blocks,
                                       std::int64_t destination_blocks);

}  // namespace kvpool
