// One group: its own hit is the hit.
#pragma once

#include "manager/cache_coordinator.hpp"

namespace kvpool {

class UnitaryCoordinator final : public CacheCoordinator {
 public:
  /// Precondition: one manager, whose block size is the hash unit.
  UnitaryCoordinator(BlockPool& pool, Managers managers, const CoordinatorOptions& options, bool is_eagle_group);

  [[nodiscard]] CoordinatedHit find_longest_cache_hit(std::span<const BlockHash> hashes,
                                                      std::int64_t max_length) const override;

 protected:
  void cache_blocks(const Request& request, SequenceState& state, std::int64_t num_tokens) override;
};

}  // namespace kvpool
