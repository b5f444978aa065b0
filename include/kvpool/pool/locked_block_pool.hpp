// LockedBlockPool: the pool in its usual shape, shards of intrusive lists under locks over a concurrent hash map.
//
// It has the member functions of BlockPool under the same names and with the same arguments, so that code over a `class
// Pool` or behind an alias takes either; what each one does, answers and reports is said there. What differs:
//
// - Progress: nothing here is lock-free. A call waits for the lock of each shard that has one of its blocks (block
//   number modulo shards), and for the bucket of each of its keys; a thread that is suspended inside a call stops every
//   other one that needs the same. Without locks are num_free_blocks, usage, stats, shard_stats, sharing_changes,
//   options, num_blocks and prefetch, and giving a reservation back; events go through a lock-free list as in
//   BlockPool.
// - Cost: find and publish are O(1) expected instead of always, and allocate memory per key; a block with k keys costs
//   O(k) to compare with; an allocation and a reservation look at every shard at worst; counts() walks over all blocks
//   and takes a lock for each, with BlockPoolOptions::enable_stats as well.
// - Order: one exact order with one shard. With more of them each has its own, and an allocation takes from the shard
//   of its processor first, then from the following ones, blocks with content included.
// - Content is never refused or dropped for want of room: the map and the lists grow. BlockPoolOptions::ring_slots and
//   index_buckets are checked and not used, nor is huge_pages; the counters of PoolStats that speak of rings, rescans,
//   retries, probes and a full index stay 0. What a pin, release or publication counts stands under the block's shard.
//
// For whoever prefers a mutex, or wants to know in his own program what the locks cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvpool/pool/block_pool.hpp"

namespace kvpool {

class LockedBlockPool;

/// What Reservation is to BlockPool. Belongs to one thread.
class [[nodiscard]] LockedReservation {
 public:
  LockedReservation() noexcept = default;
  LockedReservation(LockedReservation&& other) noexcept;
  LockedReservation& operator=(LockedReservation&& other) noexcept;
  LockedReservation(const LockedReservation&) = delete;
  LockedReservation& operator=(const LockedReservation&) = delete;
  ~LockedReservation();

  [[nodiscard]] std::uint32_t remaining() const noexcept { return remaining_; }

  /// As Reservation::give_back. Wait-free, O(1).
  void give_back(std::uint32_t count) noexcept;

 private:
  friend class LockedBlockPool;
  LockedReservation(LockedBlockPool* pool, std::uint32_t count) noexcept : pool_(pool), remaining_(count) {}
  LockedBlockPool* pool_ = nullptr;
  std::uint32_t remaining_ = 0;
};

class LockedBlockPool {
 public:
  using ReservationType = LockedReservation;

  /// Throws std::invalid_argument as that of BlockPool does. Not thread-safe.
  explicit LockedBlockPool(const BlockPoolOptions& options);
  ~LockedBlockPool();
  LockedBlockPool(const LockedBlockPool&) = delete;
  LockedBlockPool& operator=(const LockedBlockPool&) = delete;
  [[nodiscard]] const BlockPoolOptions& options() const noexcept;
  [[nodiscard]] std::uint32_t num_blocks() const noexcept;

  // --- capacity -------------------------------------------------------------------------------------

  [[nodiscard]] std::uint32_t num_free_blocks() const noexcept;
  [[nodiscard]] double usage() const noexcept;
  [[nodiscard]] PoolCounts counts() const noexcept;
  [[nodiscard]] PoolStats stats() const noexcept;
  [[nodiscard]] std::vector<PoolStats> shard_stats() const;
  [[nodiscard]] std::optional<LockedReservation> try_reserve(std::uint32_t count, std::uint32_t keep_free = 0);

  // --- taking and giving references -----------------------------------------------------------------

  bool allocate(LockedReservation& reservation, std::span<BlockId> out);
  [[nodiscard]] bool get_new_blocks(std::span<BlockId> out);
  [[nodiscard]] bool touch(std::span<const BlockId> blocks);
  [[nodiscard]] bool pin(BlockHandle block, const BlockKey& key, LockedReservation& reservation);
  [[nodiscard]] std::size_t pin_prefix(std::span<const BlockHandle> blocks, HashChain chain, GroupId group,
                                       LockedReservation& reservation);
  bool free_blocks(std::span<const BlockId> blocks);
  bool free_blocks(std::span<const BlockId> blocks, std::uint64_t fence);
  bool free_blocks(std::span<const BlockHandle> blocks);
  void advance_fence(std::uint64_t value);

  // --- content ----------------------------------------------------------------------------------------

  [[nodiscard]] std::optional<BlockHandle> find(const BlockKey& key) const;
  [[nodiscard]] std::size_t find_prefix(HashChain chain, GroupId group, std::span<BlockHandle> out) const;
  void prefetch(const BlockKey& key) const noexcept;
  bool publish(BlockId block, const BlockKey& key, std::int64_t covered_tokens);
  std::size_t publish_chain(std::span<const BlockId> blocks, HashChain chain, GroupId group, std::int64_t tokens_before,
                            std::int64_t block_tokens);
  bool unpublish(BlockId block);
  bool evict_blocks(std::span<const BlockId> blocks);
  bool move_block_hashes(BlockId source, BlockId target);
  [[nodiscard]] bool reset_prefix_cache(std::uint32_t num_permanent = 0);
  [[nodiscard]] std::optional<BlockKey> primary_key(BlockId block) const;
  [[nodiscard]] std::int64_t covered_tokens(BlockId block) const;
  [[nodiscard]] bool has_key(BlockId block, const BlockKey& key) const;
  [[nodiscard]] bool is_block_writable(BlockId block) const noexcept;
  [[nodiscard]] std::uint32_t ref_count(BlockId block) const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> sharing_changes() const noexcept;
  [[nodiscard]] BlockHandle handle(BlockId block) const noexcept;

  // --- events -----------------------------------------------------------------------------------------

  void append_event(KVEvent event);
  void append_event(EventDraft&& draft);
  [[nodiscard]] EventDraft draft_event();
  [[nodiscard]] std::vector<KVEvent> take_events();
  [[nodiscard]] EventBatch take_event_batch() noexcept;

  // --- inspection: excludes others, call it alone ---------------------------------------------------------

  [[nodiscard]] BlockSnapshot snapshot(BlockId block) const;
  [[nodiscard]] std::vector<BlockId> free_order() const;
  [[nodiscard]] std::size_t num_cached_keys() const;
  [[nodiscard]] Status check_invariants() const;

 private:
  friend class LockedReservation;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvpool
