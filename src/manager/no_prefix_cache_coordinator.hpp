// Caching off: blocks are allocated and given back, nothing is published or found.
#pragma once

#include "manager/cache_coordinator.hpp"

namespace kvpool {

class NoPrefixCacheCoordinator final : public CacheCoordinator {
 public:
  using CacheCoordinator::CacheCoordinator;

  [[nodiscard]] CoordinatedHit find_longest_cache_hit(std::span<const BlockHash> hashes,
                                                      std::int64_t max_length) const override;

 protected:
  void cache_blocks(const Request& request, SequenceState& state, std::int64_t num_tokens) override;
};

}  // namespace kvpool
