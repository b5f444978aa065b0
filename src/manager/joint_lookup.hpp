// Looking up one content in several groups of equal spec: it counts when all of them have it.
#pragma once

#include <span>
#include <vector>

#include "kvpool/pool/block_pool.hpp"

namespace kvpool {

/// Looks `hash` up in every group of `groups`; writes the blocks to `found` (one per group).
/// False: some group does not have it.
[[nodiscard]] inline bool find_in_all(const BlockPool& pool, const BlockHash& hash, std::span<const GroupId> groups,
                                      std::span<BlockHandle> found) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto block = pool.find({hash, groups[g]});
    if (!block) return false;
    found[g] = *block;
  }
  return true;
}

}  // namespace kvpool
