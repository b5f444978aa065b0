#include "manager/no_prefix_cache_coordinator.hpp"

namespace kvpool {

CoordinatedHit NoPrefixCacheCoordinator::find_longest_cache_hit(std::span<const BlockHash> /*hashes*/,
                                                                std::int64_t /*max_length*/) const {
  CoordinatedHit nothing;
  nothing.blocks.groups.resize(num_groups());
  return nothing;
}

void NoPrefixCacheCoordinator::cache_blocks(const Request& /*request*/, SequenceState& /*state*/,
                                            std::int64_t /*num_tokens*/) {}

}  // namespace kvpool
