// All groups of one model together: a hit must hold in every group, an allocation succeeds in all or none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvpool/manager/kv_cache_manager.hpp"
#include "manager/single_type_manager.hpp"

namespace kvpool {

/// Outcome of a look-up over all groups.
struct CoordinatedHit {
  KVCacheBlocks blocks;
  std::int64_t length = 0;           ///< tokens
  std::int64_t uncached_common = 0;  ///< tokens that some group has beyond the length
};

/// What one allocate_slots call asks for; tokens.
struct AllocationPlan {
  SlotDemand demand;
  SlotDemand encoder_demand;  ///< of groups of encoder tokens, which know nothing of what the decoder has computed
  std::int64_t external_tokens = 0;
  const KVCacheBlocks* hits = nullptr;  ///< null: none
};

/// Blocks to allocate: `announced` is what is compared with the blocks that are free and need not be kept,
/// `reserved` what may be taken in fact (never less).
struct BlockDemand {
  std::int64_t announced = 0;
  std::int64_t reserved = 0;
  std::int64_t for_hits = 0;  ///< part of `reserved`: hits that nobody held when they were counted

  /// Blocks that must stay free beside the reservation so that both hold: announced + keep_free and
  /// reserved are at most what is free.
  [[nodiscard]] std::int64_t left_to_keep(std::int64_t keep_free) const noexcept {
    return std::max<std::int64_t>(0, keep_free - (reserved - announced));
  }
};

struct CoordinatorOptions {
  std::int64_t scheduler_block_size = 0;
  std::int64_t hash_block_size = 0;
  std::int64_t num_prefill_lookahead = 0;
  std::int64_t dcp_world_size = 1;
};

class CacheCoordinator {
 public:
  using Managers = std::vector<std::unique_ptr<SingleTypeManager>>;

  CacheCoordinator(BlockPool& pool, Managers managers, const CoordinatorOptions& options)
      : pool_(pool), managers_(std::move(managers)), options_(options) {}
  virtual ~CacheCoordinator() = default;
  CacheCoordinator(const CacheCoordinator&) = delete;
  CacheCoordinator& operator=(const CacheCoordinator&) = delete;

  [[nodiscard]] virtual CoordinatedHit find_longest_cache_hit(std::span<const BlockHash> hashes,
                                                              std::int64_t max_length) const = 0;
  /// Every group on its own; empty when that makes no sense for the model.
  [[nodiscard]] virtual std::optional<PrefixHit> find_hit_per_group(std::span<const BlockHash> hashes,
                                                                    std::int64_t max_length) const;

  /// Publishes what is full within the first `num_tokens`, as far as the request has hashes for it.
  void publish(const Request& request, SequenceState& state, std::int64_t num_tokens);

  [[nodiscard]] BlockDemand blocks_to_allocate(const SequenceState& state, const AllocationPlan& plan) const;

  /// Takes references to all hits, group after group. `reservation` is for hits alone: BlockDemand::for_hits blocks.
  /// False: one was recycled since the look-up; all are given back.
  [[nodiscard]] bool pin_hits(const Request& request, const AllocationPlan& plan, Reservation& reservation) const;

  /// Tables from pinned hits, then blocks for external tokens. No effect on a sequence that has blocks.
  void allocate_computed_blocks(SequenceState& state, const AllocationPlan& plan, Reservation& reservation);
  [[nodiscard]] std::vector<std::vector<BlockId>> allocate_new_blocks(SequenceState& state, const AllocationPlan& plan,
                                                                      Reservation& reservation);

  void remove_skipped_blocks(SequenceState& state, std::int64_t processed, std::int64_t num_prompt_tokens);
  [[nodiscard]] std::int64_t releasable_blocks(const SequenceState& state, std::int64_t processed,
                                               std::int64_t num_prompt_tokens) const;
  void free(SequenceState& state);
  [[nodiscard]] std::vector<BlockId> pop_blocks(SequenceState& state);
  void new_step_starts();

  [[nodiscard]] std::size_t num_groups() const noexcept { return managers_.size(); }
  [[nodiscard]] SingleTypeManager& manager(std::size_t group) const noexcept { return *managers_[group]; }
  [[nodiscard]] BlockPool& pool() const noexcept { return pool_; }

 protected:
  virtual void cache_blocks(const Request& request, SequenceState& state, std::int64_t num_tokens) = 0;

  [[nodiscard]] const CoordinatorOptions& options() const noexcept { return options_; }
  /// Tokens at the end of a step whose draft KV may be written again.
  [[nodiscard]] std::int64_t num_reprefillable() const noexcept;

 private:
  [[nodiscard]] static const SlotDemand& demand_of(const SingleTypeManager& manager,
                                                   const AllocationPlan& plan) noexcept {
    return manager.holds_encoder_tokens() ? plan.encoder_demand : plan.demand;
  }
  [[nodiscard]] std::span<const BlockHandle> hits_of(std::size_t group, const AllocationPlan& plan) const noexcept;
  /// Those that are still read once everything computed is there.
  [[nodiscard]] std::span<const BlockHandle> needed_hits(std::size_t group, const AllocationPlan& plan) const noexcept;
  /// Answers how many of needed_hits() it has pinned, from the first on.
  [[nodiscard]] std::size_t pin_group(std::size_t group, const Request& request, const AllocationPlan& plan,
                                      Reservation& reservation) const;
  [[nodiscard]] bool pin_one(BlockHandle hit, const BlockKey& key, Reservation& reservation) const;

  BlockPool& pool_;
  Managers managers_;
  CoordinatorOptions options_;
};

}  // namespace kvpool
