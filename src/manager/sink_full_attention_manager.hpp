// Full attention with sink tokens: the group owns the blocks of the sinks from construction on.
#pragma once

#include <vector>

#include "manager/full_attention_manager.hpp"

namespace kvpool {

class SinkFullAttentionManager final : public FullAttentionManager {
 public:
  /// Takes sink_len / block_size blocks out of the pool. Precondition: the pool has them.
  SinkFullAttentionManager(const GroupContext& context, std::int64_t num_sink_blocks);

  [[nodiscard]] std::span<const BlockId> permanent_blocks() const noexcept override { return sinks_; }

 private:
  std::vector<BlockId> sinks_;
};

}  // namespace kvpool
