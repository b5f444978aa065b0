// Recurrent state: a block holds the state at its last token, and only the newest one is read.
//
// This class serves the modes "none" and "all", where the state of every block is kept while the
// request runs over it; mode "align" adds its own allocation rules.
#pragma once

#include <memory>

#include "manager/single_type_manager.hpp"
#include "manager/step_key_set.hpp"

namespace kvpool {

class MambaManager : public SingleTypeManager {
 public:
  MambaManager(const GroupContext& context, std::int64_t num_speculative_blocks);

  [[nodiscard]] bool is_state() const noexcept override { return true; }
  [[nodiscard]] bool supports_fine_lookup() const noexcept override { return true; }

  /// From the right: the last state that is there. Never drops a unit for draft models.
  [[nodiscard]] GroupHits find_longest_cache_hit(const LookupQuery& query) const override;
  [[nodiscard]] std::int64_t skipped_tokens(std::int64_t processed) const noexcept override { return processed - 1; }

  /// A hit that was published in the current step is not written yet: the demand is then larger than
  /// the pool, so that it waits for the next step.
  [[nodiscard]] BlockNeed blocks_to_allocate(const GroupState& state, const SlotDemand& demand,
                                             std::span<const BlockHandle> hits) const override;
  std::vector<BlockId> allocate_new_blocks(GroupState& state, const SlotDemand& demand,
                                           Reservation& reservation) override;
  void cache_blocks(const Request& request, GroupState& state, std::int64_t num_tokens, std::int64_t reached) override;
  void new_step_starts() override { published_this_step_.start_step(); }

 protected:
  [[nodiscard]] std::int64_t num_speculative_blocks() const noexcept { return num_speculative_blocks_; }
  [[nodiscard]] bool published_this_step(const BlockHandle& hit) const;
  void note_published(const BlockKey& key) noexcept { published_this_step_.insert(key); }
  void note_published(BlockId block);

  [[nodiscard]] RetentionMask reachable_blocks(std::int64_t begin, std::int64_t end,
                                               std::span<const std::int64_t> boundaries) const override;

 private:
  std::int64_t num_speculative_blocks_;
  StepKeySet published_this_step_;
};

}  // namespace kvpool
