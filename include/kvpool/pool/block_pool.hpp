// BlockPool: which physical blocks are referenced, which hold reusable content, which is recycled next.
//
// Many threads may call everything below at the same time; none of it takes a lock. Calls that exclude others
// say so. A thread suspended inside a call, at any instruction and for any time, delays nobody (docs/protocol.md).
// Nothing throws but the constructor, and std::bad_alloc where the allocator fails: the pool is of no more use then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvpool/block/block_hash.hpp"
#include "kvpool/block/block_id.hpp"
#include "kvpool/block/block_snapshot.hpp"
#include "kvpool/foundation/error.hpp"
#include "kvpool/pool/block_pool_options.hpp"
#include "kvpool/pool/event_batch.hpp"
#include "kvpool/pool/event_draft.hpp"
#include "kvpool/pool/kv_event.hpp"
#include "kvpool/pool/pool_stats.hpp"

namespace kvpool {

class BlockPool;

/// Blocks promised to one caller: they cannot be taken by others, and collecting them never fails.
/// Move-only; what was not used returns on destruction. Belongs to one thread.
class [[nodiscard]] Reservation {
 public:
  Reservation() noexcept = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation();

  [[nodiscard]] std::uint32_t remaining() const noexcept { return remaining_; }

  /// Gives `count` blocks back to everybody. Errors: more than remaining(): reservation_misuse, reported, all that
  /// remain are given back. Wait-free, O(1).
  void give_back(std::uint32_t count) noexcept;

 private:
  friend class BlockPool;
  Reservation(BlockPool* pool, std::uint32_t count) noexcept : pool_(pool), remaining_(count) {}
  BlockPool* pool_ = nullptr;
  std::uint32_t remaining_ = 0;
};

/// Hashes of consecutive units of one request, seen at a coarser granularity: element i is
/// units[(i + 1) * stride - 1], since a hash covers everything before it.
struct HashChain {
  std::span<const BlockHash> units;
  std::size_t stride = 1;

  [[nodiscard]] std::size_t size() const noexcept { return stride == 1 ? units.size() : units.size() / stride; }
  [[nodiscard]] const BlockHash& operator[](std::size_t i) const noexcept { return units[(i + 1) * stride - 1]; }
};

class BlockPool {
 public:
  using ReservationType = Reservation;

  /// Throws std::invalid_argument when num_blocks is 0 or more than 2^29, num_shards more than 256, ring_slots neither
  /// 0 nor a power of two above 1, or index_buckets more than 2^28. Time and memory: O(num_blocks). Not thread-safe.
  explicit BlockPool(const BlockPoolOptions& options);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  [[nodiscard]] const BlockPoolOptions& options() const noexcept;  ///< As given. Wait-free, O(1).
  [[nodiscard]] std::uint32_t num_blocks() const noexcept;         ///< Null block included. Wait-free, O(1).

  // --- capacity -------------------------------------------------------------------------------------

  /// Blocks that an allocation could get now; blocks with reusable content count. Wait-free, O(1).
  [[nodiscard]] std::uint32_t num_free_blocks() const noexcept;

  /// 1 - free / (num_blocks - 1), in [0, 1]; 0 for a pool of one block. Wait-free, O(1).
  [[nodiscard]] double usage() const noexcept;

  /// Where the blocks are; exact when no call is in progress, see PoolCounts. Wait-free, O(shards);
  /// O(num_blocks) without BlockPoolOptions::enable_stats.
  [[nodiscard]] PoolCounts counts() const noexcept;
  /// Monotonic counters of all shards together. Wait-free, O(shards).
  [[nodiscard]] PoolStats stats() const noexcept;
  /// The same shard by shard. Wait-free but for the memory of the answer, O(shards).
  [[nodiscard]] std::vector<PoolStats> shard_stats() const;

  /// Promises `count` blocks if at least `count + keep_free` are free, else answers empty and changes
  /// nothing. count may be 0. Lock-free, O(1); with fences in use it also moves passed blocks, see
  /// advance_fence.
  [[nodiscard]] std::optional<Reservation> try_reserve(std::uint32_t count, std::uint32_t keep_free = 0);

  // --- taking and giving references -----------------------------------------------------------------

  /// Collects out.size() reserved blocks in eviction order; each has reference count 1, has lost its
  /// content and, where events are on, one removal per key was announced, in the order of `out`.
  /// Errors: more than reservation.remaining(), or a reservation of another pool: reservation_misuse, reported, false,
  /// nothing has changed. Lock-free, O(out.size()).
  bool allocate(Reservation& reservation, std::span<BlockId> out);

  /// try_reserve and allocate in one: all or nothing. False: fewer than out.size() are free. Lock-free, O(out.size()).
  [[nodiscard]] bool get_new_blocks(std::span<BlockId> out);

  /// Adds a reference to each block. The caller knows that none of them is recycled meanwhile (it holds
  /// a reference, or is alone). The null block is ignored. False: no capacity for a free one; nothing
  /// has changed. Errors: unknown_block, ref_overflow: reported, false, nothing has changed.
  /// Lock-free, O(blocks.size()); O(free blocks) for a free block that never had content; O(blocks.size() squared)
  /// where capacity does not cover a long list unless what it names twice is found.
  [[nodiscard]] bool touch(std::span<const BlockId> blocks);

  /// Match-and-pin: adds a reference to `block` if it still is the block of that look-up and still
  /// answers for `key`. A block without references needs one unit of `reservation`; one that has
  /// references, or waits for a fence, needs none. False: recycled since, the reservation is used up, or the block has
  /// 65,534 references; nothing has changed, but that a unit may be gone where a holder replaced the key in the middle
  /// of the call. Errors: foreign_handle, unknown_block, reservation_misuse (units of another pool): reported, false,
  /// nothing has changed.
  /// The null block is always pinned, without effect. Lock-free, O(1).
  [[nodiscard]] bool pin(BlockHandle block, const BlockKey& key, Reservation& reservation);

  /// pin(blocks[i], {chain[i], group}) for i = 0, 1, ... until one fails or the shorter list ends; answers how
  /// many were pinned. Cheaper than one by one: the memory latency is hidden. Lock-free, O(answer).
  [[nodiscard]] std::size_t pin_prefix(std::span<const BlockHandle> blocks, HashChain chain, GroupId group,
                                       Reservation& reservation);

  /// Gives back one reference of each block, in eviction order: what comes first is recycled first
  /// among the blocks of this call. The null block is ignored.
  /// Errors: unknown_block, double_free (a block listed more often than it is referenced): reported to the
  /// contract handler, the blocks at fault are left alone, the others are released, false.
  /// Lock-free, O(blocks.size()).
  bool free_blocks(std::span<const BlockId> blocks);

  /// Like free_blocks, for blocks that work already in flight may still touch: what loses its last
  /// reference can be found and pinned at once, but is handed out only after advance_fence(value) with
  /// value >= fence. A fence that has passed already is no fence. Lock-free, O(blocks.size()); the first one makes the
  /// fence queue, O(num_blocks).
  bool free_blocks(std::span<const BlockId> blocks, std::uint64_t fence);

  /// free_blocks with a check of generation and pool: stale_handle and foreign_handle besides. Lock-free,
  /// O(blocks.size()).
  bool free_blocks(std::span<const BlockHandle> blocks);

  /// Announces that all work up to step `value` is done. Values only grow; a smaller one changes nothing.
  /// Moves a bounded number of blocks into the free order; the rest follows with later calls, and at once
  /// for an allocation that would fail without them. Lock-free, O(1) but for the first one, see above.
  void advance_fence(std::uint64_t value);

  // --- content ----------------------------------------------------------------------------------------

  /// The block that answers for `key`, first published first. A hint: it may be recycled at any time
  /// unless the caller pins it. Wait-free, O(1).
  [[nodiscard]] std::optional<BlockHandle> find(const BlockKey& key) const;

  /// Length of the longest prefix of `chain` whose elements all have a block, at most out.size();
  /// writes their handles to `out`. Answers as find() one by one, memory latency hidden. Wait-free, O(answer).
  [[nodiscard]] std::size_t find_prefix(HashChain chain, GroupId group, std::span<BlockHandle> out) const;

  /// Starts loading what find(key) will need. Wait-free, O(1).
  void prefetch(const BlockKey& key) const noexcept;

  /// Makes a referenced block answer for `key`, whose prefix is `covered_tokens` long. A block without a
  /// primary key gets it as primary, else as a secondary one; a key the block already has is no change.
  /// True when the key was new for this block and kept (see DuplicatePolicy). False without effect also for
  /// a block that nobody references, while another holder of a shared block is writing its first key, and
  /// when the index is full (PoolStats::index_full). Errors: unknown_block, reported, false. Lock-free, O(1); a further
  /// key of a block may need memory for its record.
  /// Announces nothing: the caller describes what it stored (append_event) before it publishes.
  bool publish(BlockId block, const BlockKey& key, std::int64_t covered_tokens);

  /// publish(blocks[i], {chain[i], group}, tokens_before + (i + 1) * block_tokens) for each i, in this order; null
  /// blocks are skipped. Answers how many keys were new and kept. Cheaper than one by one: the memory latency is
  /// hidden. Each key can be found as soon as it is published. Errors: unknown_block, reported, others proceed.
  /// Lock-free, O(blocks.size()).
  std::size_t publish_chain(std::span<const BlockId> blocks, HashChain chain, GroupId group, std::int64_t tokens_before,
                            std::int64_t block_tokens);

  /// Takes all keys from `block`, announces one removal per key, primary first, and answers whether
  /// there was one. References and place in the order stay. Errors: unknown_block, reported, false. Lock-free, O(keys).
  bool unpublish(BlockId block);

  /// unpublish for each, in order. Errors: unknown_block, reported, others proceed, false. Lock-free, O(blocks.size()).
  bool evict_blocks(std::span<const BlockId> blocks);

  /// Re-points all keys of `source` to `target`; announces nothing. Both referenced by the caller. At every moment one
  /// of the two answers. False: `source` has no key, `target` has one, the index is full, or another thread took the
  /// keys from `source` meanwhile; nothing has changed then, though `target` may have answered during the call.
  /// Lock-free.
  bool move_block_hashes(BlockId source, BlockId target);

  /// Forgets all content and announces it, if no block is referenced, reserved or fenced; else false and
  /// nothing changed. The order of free blocks stays. Excludes others: call it alone. O(num_blocks).
  /// `num_permanent` blocks may be referenced: those that a manager holds for ever (attention sinks).
  [[nodiscard]] bool reset_prefix_cache(std::uint32_t num_permanent = 0);

  // Of an id outside the pool the next three report unknown_block and answer as for a block without content; the other
  // ones answer false, 0, and a handle of generation 0.

  /// Primary key of the block; empty: none. Exact while the caller holds a reference. Wait-free, O(1).
  [[nodiscard]] std::optional<BlockKey> primary_key(BlockId block) const;
  /// Prefix length of the primary key in tokens, 0 when it has none. Wait-free, O(1).
  [[nodiscard]] std::int64_t covered_tokens(BlockId block) const;
  /// Whether `key` is among the keys of `block`. Wait-free, O(1).
  [[nodiscard]] bool has_key(BlockId block, const BlockKey& key) const;

  /// Nobody else can see the block: one reference, no primary key, not the null block. Wait-free, O(1).
  [[nodiscard]] bool is_block_writable(BlockId block) const noexcept;

  [[nodiscard]] std::uint32_t ref_count(BlockId block) const noexcept;  ///< Wait-free, O(1).

  /// Grows when a referenced block gets a further reference, or loses one and keeps others; at the end of the call
  /// that did it. As long as it stays the same, so do the reference counts of all blocks that the caller holds.
  /// Empty without BlockPoolOptions::enable_stats. Wait-free, O(shards).
  [[nodiscard]] std::optional<std::uint64_t> sharing_changes() const noexcept;

  [[nodiscard]] BlockHandle handle(BlockId block) const noexcept;  ///< Of its current life. Wait-free, O(1).

  // --- events -----------------------------------------------------------------------------------------

  /// Appends to the pool's one event order; no effect with events off. Lock-free, O(1).
  void append_event(KVEvent event);
  /// The same for a draft of this pool, which is empty afterwards. Allocates nothing. One that was moved from announces
  /// nothing. Errors: foreign_handle for a draft of another pool: reported, nothing has changed. Lock-free, O(1).
  void append_event(EventDraft&& draft);

  /// A store to be filled in and appended, in memory that was used for one before: what costs least where events are
  /// many. With events off as well, though appending it has no effect. Lock-free, O(shards), but for a draft that has
  /// to be made.
  [[nodiscard]] EventDraft draft_event();

  /// Takes everything announced so far, oldest first. Of several callers each gets a stretch of its own. Lock-free,
  /// O(announcements).
  [[nodiscard]] std::vector<KVEvent> take_events();

  /// The same as they were recorded, for consumers that go through them once: no container is made for each removed
  /// key, and the number of the batch says where its stretch belongs. Either function takes what there is. Lock-free,
  /// O(calls that announced).
  [[nodiscard]] EventBatch take_event_batch() noexcept;

  // --- inspection: excludes others, call it alone ---------------------------------------------------------

  /// What `block` looks like. Errors: unknown_block, reported, an empty one. O(1).
  [[nodiscard]] BlockSnapshot snapshot(BlockId block) const;

  /// Free blocks in the order in which they would be handed out; exact with one shard. O(num_blocks).
  [[nodiscard]] std::vector<BlockId> free_order() const;

  /// Distinct keys that a look-up would find. O(num_blocks + keys log keys).
  [[nodiscard]] std::size_t num_cached_keys() const;

  /// Recomputes every count from the blocks and compares: empty status when all invariants hold. O(num_blocks).
  [[nodiscard]] Status check_invariants() const;

 private:
  friend class Reservation;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvpool
