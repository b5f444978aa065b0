#include "manager/sink_full_attention_manager.hpp"

#include "kvpool/foundation/contract.hpp"

namespace kvpool {

SinkFullAttentionManager::SinkFullAttentionManager(const GroupContext& context, std::int64_t num_sink_blocks)
    : FullAttentionManager(context), sinks_(static_cast<std::size_t>(num_sink_blocks)) {
  if (!pool().get_new_blocks(sinks_)) {
    fail_contract({ContractBreach::corrupted_state, "the pool has no blocks for the attention sinks"});
  }
}

}  // namespace kvpool
