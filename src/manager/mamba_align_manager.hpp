// Recurrent state, mode "align": a request holds its running state, the state of the step before and
// its speculative states; all other table positions are null.
#pragma once

#include "manager/mamba_manager.hpp"

namespace kvpool {

class MambaAlignManager final : public MambaManager {
 public:
  using MambaManager::MambaManager;

  [[nodiscard]] bool keeps_prompt_tails() const noexcept override { return true; }
  [[nodiscard]] BlockNeed blocks_to_allocate(const GroupState& state, const SlotDemand& demand,
                                             std::span<const BlockHandle> hits) const override;
  /// The state that a load from outside brings, unless the request goes on inside its block.
  [[nodiscard]] std::int64_t blocks_not_announced(const GroupState& state, const SlotDemand& demand) const override;
  std::vector<BlockId> allocate_new_blocks(GroupState& state, const SlotDemand& demand,
                                           Reservation& reservation) override;
  /// Full blocks, and the state at the prompt's last hash boundary when that lies inside a block.
  void cache_blocks(const Request& request, GroupState& state, std::int64_t num_tokens, std::int64_t reached) override;
  void remove_skipped_blocks(GroupState& state, std::int64_t processed, std::int64_t num_prompt_tokens) override;
  [[nodiscard]] std::int64_t releasable_blocks(const GroupState& state, std::int64_t processed,
                                               std::int64_t num_prompt_tokens) const override;

 private:
  void move_speculative_blocks(GroupState& state, std::int64_t num_skipped);
  BlockId detach_running_state(GroupState& state, Reservation& reservation);
  [[nodiscard]] bool leaves_last_state(const GroupState& state, std::int64_t processed) const;
  void register_prompt_tail(const Request& request, GroupState& state, std::int64_t num_tokens);
};

}  // namespace kvpool
