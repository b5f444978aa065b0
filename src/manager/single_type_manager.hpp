// One group's rules: which blocks a request needs, reuses, publishes and gives back.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "kvpool/manager/request.hpp"
#include "manager/group_context.hpp"
#include "manager/retention_mask.hpp"
#include "manager/sequence_state.hpp"

namespace kvpool {

/// Rules that most types share; types override what differs. Holds no state of requests: every call
/// gets the request's GroupState, so calls for different requests may run at the same time.
class SingleTypeManager {
 public:
  explicit SingleTypeManager(const GroupContext& context) : context_(context) {}
  virtual ~SingleTypeManager() = default;
  SingleTypeManager(const SingleTypeManager&) = delete;
  SingleTypeManager& operator=(const SingleTypeManager&) = delete;

  [[nodiscard]] const GroupContext& context() const noexcept { return context_; }
  [[nodiscard]] std::int64_t block_size() const noexcept { return context_.block_size; }

  /// Last matched unit dropped, and one block more retained for it. Set while the coordinator is built.
  [[nodiscard]] bool use_eagle() const noexcept { return use_eagle_; }
  void set_use_eagle(bool value) noexcept { use_eagle_ = value; }

  // --- traits -------------------------------------------------------------------------------------------

  [[nodiscard]] virtual bool is_full_attention() const noexcept { return false; }
  [[nodiscard]] virtual bool is_state() const noexcept { return false; }
  /// A look-up may end at any hash unit, not only at the end of a block.
  [[nodiscard]] virtual bool supports_fine_lookup() const noexcept { return false; }
  /// Registers its state where the prompt's last hash unit ends, also inside a block.
  [[nodiscard]] virtual bool keeps_prompt_tails() const noexcept { return false; }
  /// Needs blocks for encoder tokens instead of decoder tokens.
  [[nodiscard]] virtual bool holds_encoder_tokens() const noexcept { return false; }
  /// Blocks that belong to the group for ever.
  [[nodiscard]] virtual std::span<const BlockId> permanent_blocks() const noexcept { return {}; }

  // --- look-up --------------------------------------------------------------------------------------------

  [[nodiscard]] virtual GroupHits find_longest_cache_hit(const LookupQuery& query) const = 0;

  /// Leading tokens that no token from `processed` on reads.
  [[nodiscard]] virtual std::int64_t skipped_tokens(std::int64_t processed) const noexcept;

  // --- allocation -----------------------------------------------------------------------------------------

  /// Blocks that leave the free order if `demand` is met, hits without references included.
  [[nodiscard]] virtual BlockNeed blocks_to_allocate(const GroupState& state, const SlotDemand& demand,
                                                     std::span<const BlockHandle> hits) const;

  /// Blocks that the allocation takes on top of blocks_to_allocate, which speaks as engines expect it.
  [[nodiscard]] virtual std::int64_t blocks_not_announced(const GroupState& /*state*/,
                                                          const SlotDemand& /*demand*/) const {
    return 0;
  }

  /// Hits at the front of the list that are not needed any more once `computed` tokens are there.
  [[nodiscard]] std::size_t unneeded_hits(std::int64_t computed, std::size_t num_hits) const noexcept;

  /// Starts the table with hits that are pinned already; the first unneeded_hits() become null entries.
  virtual void add_local_blocks(GroupState& state, const SlotDemand& demand, std::span<const BlockHandle> hits);

  /// Blocks for tokens that come from outside.
  virtual void allocate_external_blocks(GroupState& state, const SlotDemand& demand, Reservation& reservation);

  /// Blocks for everything else. Answers the new part of the table, targets of copies first.
  virtual std::vector<BlockId> allocate_new_blocks(GroupState& state, const SlotDemand& demand,
                                                   Reservation& reservation);

  // --- content --------------------------------------------------------------------------------------------

  /// Publishes full blocks within the first `num_tokens`, whose content is final. The request itself has run to
  /// `reached`, which is more while its last tokens may be computed again.
  virtual void cache_blocks(const Request& request, GroupState& state, std::int64_t num_tokens, std::int64_t reached);

  // --- giving back ------------------------------------------------------------------------------------------

  virtual void remove_skipped_blocks(GroupState& state, std::int64_t processed, std::int64_t num_prompt_tokens);

  /// Free blocks that remove_skipped_blocks would yield. O(blocks that would leave).
  [[nodiscard]] virtual std::int64_t releasable_blocks(const GroupState& state, std::int64_t processed,
                                                       std::int64_t num_prompt_tokens) const;

  /// Forgets the request; answers its table.
  virtual std::vector<BlockId> pop_blocks(GroupState& state);
  void free(GroupState& state);

  // --- scheduler ------------------------------------------------------------------------------------------

  /// Leading blocks of the table that every request of the group holds. O(1) while nobody begins or ends to share a
  /// block; after that once O(answer).
  [[nodiscard]] virtual std::int64_t num_common_prefix_blocks(GroupState& state) const;
  virtual void new_step_starts() {}
  [[nodiscard]] std::vector<BlockCopy> take_copies() { return copies_.drain(); }
  [[nodiscard]] std::vector<BlockId> take_new_block_ids() { return blocks_to_zero_.drain(); }
  void record_for_zeroing(std::span<const BlockId> blocks);

 protected:
  /// Half-open range of table positions.
  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  [[nodiscard]] BlockPool& pool() const noexcept { return *context_.pool; }

  /// Positions that nothing reads any more once `processed` tokens are done; earlier ones may be null.
  [[nodiscard]] virtual Range leaving_range(const GroupState& state, std::int64_t processed,
                                            std::int64_t num_prompt_tokens) const;

  /// Which of the blocks [begin, end) are worth publishing.
  [[nodiscard]] virtual RetentionMask reachable_blocks(std::int64_t begin, std::int64_t end,
                                                       std::span<const std::int64_t> boundaries) const;

  /// Appends `count` fresh blocks to the table.
  void append_blocks(GroupState& state, std::int64_t count, Reservation& reservation);
  [[nodiscard]] BlockId take_block(Reservation& reservation);
  void take_blocks(Reservation& reservation, std::span<BlockId> out);

  /// Replaces the partial hit by a fresh block and queues the copy; both ends get an extra reference.
  BlockId copy_on_write(GroupState& state, Reservation& reservation);
  void queue_copy(BlockId source, BlockId target) { copies_.push({source, target}); }
  void enter_table(GroupState& state);

  [[nodiscard]] std::int64_t num_tables() const noexcept { return num_tables_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t evictable_hits(std::span<const BlockHandle> hits) const;

 private:
  GroupContext context_;
  bool use_eagle_ = false;
  std::atomic<std::int64_t> num_tables_{0};
  PushList<BlockCopy> copies_;
  PushList<BlockId> blocks_to_zero_;
};

}  // namespace kvpool
