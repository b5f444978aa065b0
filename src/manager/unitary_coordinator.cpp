#include "manager/unitary_coordinator.hpp"

#include <algorithm>
#include <utility>

namespace kvpool {

UnitaryCoordinator::UnitaryCoordinator(BlockPool& pool, Managers managers, const CoordinatorOptions& options,
                                       bool is_eagle_group)
    : CacheCoordinator(pool, std::move(managers), options) {
  manager(0).set_use_eagle(is_eagle_group);
}

CoordinatedHit UnitaryCoordinator::find_longest_cache_hit(std::span<const BlockHash> hashes,
                                                          std::int64_t max_length) const {
  const SingleTypeManager& only = manager(0);
  const GroupId group{0};
  GroupHits hits =
      only.find_longest_cache_hit({hashes, max_length, std::span(&group, 1), only.use_eagle(), only.block_size()});
  CoordinatedHit hit;
  hit.blocks.groups = std::move(hits.lists);
  hit.length = hits.length;
  return hit;
}

void UnitaryCoordinator::cache_blocks(const Request& request, SequenceState& state, std::int64_t num_tokens) {
  const std::int64_t final_tokens = std::max<std::int64_t>(0, num_tokens - num_reprefillable());
  manager(0).cache_blocks(request, state.groups[0], final_tokens, num_tokens);
}

}  // namespace kvpool
