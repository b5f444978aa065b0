// Several groups: the longest prefix that all of them can reuse, found by letting each one shorten the
// candidate until nobody objects.
#pragma once

#include <vector>

#include "manager/cache_coordinator.hpp"

namespace kvpool {

class HybridCoordinator final : public CacheCoordinator {
 public:
  /// `groups` in the managers' order; `eagle_groups[g]` tells whether group g holds draft layers.
  HybridCoordinator(BlockPool& pool, Managers managers, const CoordinatorOptions& options,
                    std::span<const KVCacheGroup> groups, const std::vector<bool>& eagle_groups);

  [[nodiscard]] CoordinatedHit find_longest_cache_hit(std::span<const BlockHash> hashes,
                                                      std::int64_t max_length) const override;
  [[nodiscard]] std::optional<PrefixHit> find_hit_per_group(std::span<const BlockHash> hashes,
                                                            std::int64_t max_length) const override;

  /// Hits may end at any hash unit (state groups in mode "align" with blocks larger than the unit).
  [[nodiscard]] bool partial_hits_enabled() const noexcept { return partial_hits_; }

 protected:
  void cache_blocks(const Request& request, SequenceState& state, std::int64_t num_tokens) override;

 private:
  /// Groups of equal spec, looked up together.
  struct SpecGroup {
    std::vector<GroupId> ids;
    bool use_eagle = false;
  };
  struct Search;

  void merge_equal_specs(std::span<const KVCacheGroup> groups, const std::vector<bool>& eagle_groups);
  [[nodiscard]] bool can_hit_partially() const;
  [[nodiscard]] SingleTypeManager& first_manager(const SpecGroup& group) const noexcept {
    return manager(group.ids.front().value());
  }
  [[nodiscard]] std::int64_t alignment() const noexcept {
    return partial_hits_ ? options().hash_block_size : options().scheduler_block_size;
  }
  [[nodiscard]] std::int64_t align(std::int64_t tokens) const noexcept;
  [[nodiscard]] std::int64_t drop_margin(const SingleTypeManager& manager) const noexcept;
  /// Lets every spec group shorten `candidate` once.
  [[nodiscard]] std::int64_t shorten(Search& search, std::int64_t candidate) const;

  std::vector<SpecGroup> spec_groups_;  ///< full attention first
  bool partial_hits_ = false;
};

}  // namespace kvpool
