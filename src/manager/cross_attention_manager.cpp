#include "manager/cross_attention_manager.hpp"

namespace kvpool {

GroupHits CrossAttentionManager::find_longest_cache_hit(const LookupQuery& query) const {
  GroupHits nothing;
  nothing.lists.resize(query.groups.size());
  return nothing;
}

void CrossAttentionManager::add_local_blocks(GroupState& /*state*/, const SlotDemand& /*demand*/,
                                             std::span<const BlockHandle> /*hits*/) {}

void CrossAttentionManager::allocate_external_blocks(GroupState& /*state*/, const SlotDemand& /*demand*/,
                                                     Reservation& /*reservation*/) {}

void CrossAttentionManager::cache_blocks(const Request& /*request*/, GroupState& /*state*/, std::int64_t /*num_tokens*/,
                                         std::int64_t /*reached*/) {}

}  // namespace kvpool
