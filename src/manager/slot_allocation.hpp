// allocate_slots: from a request's progress to blocks, in one piece.
#pragma once

#include "kvpool/foundation/error.hpp"
#include "kvpool/manager/kv_cache_manager.hpp"
#include "manager/cache_coordinator.hpp"

namespace kvpool {

/// One call's numbers, checked and worked out once. Token layout:
/// [computed][new local hits][external hits][new][look-ahead].
class SlotAllocation {
 public:
  SlotAllocation(CacheCoordinator& coordinator, const KVCacheManagerOptions& options, std::int64_t watermark_blocks,
                 const Request& request, const AllocateSlots& arguments);

  [[nodiscard]] Status validate(const SequenceState& state) const;

  /// Whether run() would succeed now, window blocks that it would release included.
  [[nodiscard]] bool fits(const SequenceState& state) const;

  [[nodiscard]] AllocatedSlots run(SequenceState& state);

 private:
  [[nodiscard]] bool whole_sequence_fits(const SequenceState& state) const;
  [[nodiscard]] AllocationPlan plan() const noexcept;
  [[nodiscard]] std::int64_t processed_tokens() const noexcept;

  CacheCoordinator& coordinator_;
  const KVCacheManagerOptions& options_;
  const Request& request_;
  const AllocateSlots& arguments_;
  const KVCacheBlocks* hits_;  ///< null when there are none
  std::int64_t watermark_ = 0;
  std::int64_t local_ = 0;  ///< computed tokens, new hits included
  std::int64_t total_ = 0;  ///< with external tokens, at most max_model_len
};

}  // namespace kvpool
