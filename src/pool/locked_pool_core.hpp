// What is behind LockedBlockPool: shards of intrusive lists under locks, a concurrent hash map as index.
//
// Locks are taken in this order: shards (two of them through std::lock), then a bucket of the map.
#pragma once

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <tbb/concurrent_hash_map.h>

#include "foundation/cache_line.hpp"
#include "kvpool/foundation/contract.hpp"
#include "kvpool/pool/block_pool.hpp"
#include "pool/capacity.hpp"
#include "pool/event_log.hpp"
#include "pool/shard_counters.hpp"

namespace kvpool {

/// Same operations as LockedBlockPool, see there; a reservation is a plain number of units here.
class LockedPoolCore {
 public:
  static constexpr std::size_t kFencePortion = 64;
  static constexpr std::uint32_t kMaxRefs = 65'534;

  explicit LockedPoolCore(const BlockPoolOptions& options);
  ~LockedPoolCore();
  LockedPoolCore(const LockedPoolCore&) = delete;
  LockedPoolCore& operator=(const LockedPoolCore&) = delete;

  [[nodiscard]] const BlockPoolOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::uint32_t num_blocks() const noexcept { return options_.num_blocks; }

  [[nodiscard]] std::uint32_t num_free_blocks() const noexcept { return static_cast<std::uint32_t>(capacity_.free()); }
  [[nodiscard]] PoolCounts counts() const noexcept;
  [[nodiscard]] PoolStats stats() const noexcept;
  [[nodiscard]] std::vector<PoolStats> shard_stats() const;
  [[nodiscard]] bool try_reserve(std::uint32_t count, std::uint32_t keep_free = 0);
  void give_back(std::uint32_t count) noexcept { capacity_.credit(count); }

  void allocate(std::span<BlockId> out);
  [[nodiscard]] bool get_new_blocks(std::span<BlockId> out);
  [[nodiscard]] bool touch(std::span<const BlockId> blocks);
  [[nodiscard]] bool pin(BlockHandle block, const BlockKey& key, std::uint32_t& units);
  [[nodiscard]] std::size_t pin_prefix(std::span<const BlockHandle> blocks, HashChain chain, GroupId group,
                                       std::uint32_t& units);
  bool free_blocks(std::span<const BlockId> blocks) { return free_blocks(blocks, 0); }
  bool free_blocks(std::span<const BlockId> blocks, std::uint64_t fence);
  bool free_blocks(std::span<const BlockHandle> blocks);
  void advance_fence(std::uint64_t value);

  [[nodiscard]] std::optional<BlockHandle> find(const BlockKey& key) const;
  [[nodiscard]] std::size_t find_prefix(HashChain chain, GroupId group, std::span<BlockHandle> out) const;
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

  void append_event(KVEvent event);
  void append_event(EventDraft&& draft);
  [[nodiscard]] EventDraft draft_event() { return events_.draft(here()); }
  [[nodiscard]] std::vector<KVEvent> take_events() { return events_.take(); }
  [[nodiscard]] EventBatch take_event_batch() noexcept { return events_.take_batch(); }

  [[nodiscard]] BlockSnapshot snapshot(BlockId block) const;
  [[nodiscard]] std::vector<BlockId> free_order() const;
  [[nodiscard]] std::size_t num_cached_keys() const;
  [[nodiscard]] Status check_invariants() const;

 private:
  using Hook = boost::intrusive::list_member_hook<boost::intrusive::link_mode<boost::intrusive::safe_link>>;
  /// Guarded by the lock of its shard. In at most one list: free, or waiting for a fence.
  struct Block {
    Hook hook;
    std::uint32_t refs = 0;
    std::uint16_t generation = 0;
    bool queued = false;
    bool fenced = false;
    std::uint64_t fence = 0;
    std::vector<BlockKey> keys;  ///< primary first
    std::int64_t covered = 0;
  };
  using List = boost::intrusive::list<Block, boost::intrusive::member_hook<Block, Hook, &Block::hook>>;
  struct alignas(kCacheLineBytes) Shard {
    explicit Shard(bool stats) : counters(stats) {}
    mutable std::mutex mutex;
    List free;
    List fenced;  ///< in the order of release
    ShardCounters<std::atomic> counters;
  };
  struct KeyHash {
    static std::size_t hash(const BlockKey& key) { return std::hash<BlockKey>{}(key); }
    static bool equal(const BlockKey& a, const BlockKey& b) { return a == b; }
  };
  /// Blocks of a key in the order of registration. std::allocator: the sanitizers see through it.
  using Map = tbb::concurrent_hash_map<BlockKey, std::vector<std::uint32_t>, KeyHash,
                                       std::allocator<std::pair<const BlockKey, std::vector<std::uint32_t>>>>;

  [[nodiscard]] std::uint32_t shard_of(std::uint32_t block) const noexcept { return block % num_shards_; }
  [[nodiscard]] Shard& shard(std::uint32_t block) const noexcept { return *shards_[shard_of(block)]; }
  [[nodiscard]] std::uint32_t here() const noexcept;
  [[nodiscard]] BlockId id_of(const Block& block) const noexcept {
    return BlockId{static_cast<std::uint32_t>(&block - blocks_.data())};
  }
  [[nodiscard]] bool known(BlockId block, const char* function) const;
  static void report(ContractBreach breach, const char* function, BlockId block);
  [[nodiscard]] static bool carries(const Block& block, const BlockKey& key);
  [[nodiscard]] bool goes_left(const Block& block) const noexcept;

  // under the lock of the block's shard
  void enqueue_back(Shard& home, Block& block);
  void enqueue_front(Shard& home, Block& block);
  void add_reference(Shard& home, Block& block);
  static void count_pin(Shard& home, const Block& block) noexcept;
  bool remove_keys(Block& block, RemovedKeys* removed);
  [[nodiscard]] bool enter(Block& block, const BlockKey& key, std::int64_t covered, bool keep_duplicate,
                           bool& duplicate);
  std::uint32_t release_on(Shard& home, std::uint32_t number, std::span<const BlockId> blocks, std::uint64_t fence,
                           std::vector<BlockId>& at_fault);
  std::uint32_t drain(Shard& home, std::size_t limit, bool out_of_order);

  void drain_all(bool out_of_order, std::size_t limit);
  [[nodiscard]] bool reserve(std::uint32_t count, std::uint32_t keep_free);
  [[nodiscard]] RemovedKeys* collector(RemovedKeys& removed) noexcept {
    if (!options_.enable_events) return nullptr;
    if (removed.unattached()) removed.attach(events_.nodes(), here());
    return &removed;
  }

  BlockPoolOptions options_;
  std::uint32_t num_shards_;
  std::uint16_t number_;
  std::vector<Block> blocks_;
  std::vector<std::unique_ptr<Shard>> shards_;
  Map index_;
  std::atomic<std::uint64_t> fence_passed_{0};
  Capacity<std::atomic> capacity_;
  EventLog<std::atomic> events_;
};

}  // namespace kvpool
