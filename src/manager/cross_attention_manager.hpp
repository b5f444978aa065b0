// Cross attention: blocks for the encoder's tokens, allocated once, never shared and never published.
#pragma once

#include "manager/single_type_manager.hpp"

namespace kvpool {

class CrossAttentionManager final : public SingleTypeManager {
 public:
  using SingleTypeManager::SingleTypeManager;

  [[nodiscard]] bool holds_encoder_tokens() const noexcept override { return true; }
  [[nodiscard]] GroupHits find_longest_cache_hit(const LookupQuery& query) const override;
  void add_local_blocks(GroupState& state, const SlotDemand& demand, std::span<const BlockHandle> hits) override;
  void allocate_external_blocks(GroupState& state, const SlotDemand& demand, Reservation& reservation) override;
  void cache_blocks(const Request& request, GroupState& state, std::int64_t num_tokens, std::int64_t reached) override;
};

}  // namespace kvpool
