// The pool itself, over a choice of atomic type: std::atomic is shipped, a scheduler's atomic is checked.
//
// This class joins the parts: state words (block/), free order and fences (queue/), index (prefix/),
// capacity, secondary keys, events. The rules of joining them:
//   1. capacity is reserved before a block is taken, and credited after it can be reached;
//   2. content ends by one exchange on the state word, and who wins it erases the index entries;
//   3. index entries stand before HASHED is set, and are verified against the block after it is pinned.
// docs/protocol.md has the table of states, the races and their winners, and the pairs of the tags [S1].
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "block/block_protocol.hpp"
#include "block/key_words.hpp"
#include "kvpool/block/block_snapshot.hpp"
#include "kvpool/foundation/contract.hpp"
#include "kvpool/pool/block_pool.hpp"
#include "pool/capacity.hpp"
#include "pool/event_log.hpp"
#include "pool/placement.hpp"
#include "pool/pool_layout.hpp"
#include "pool/secondary_keys.hpp"
#include "pool/shard_counters.hpp"
#include "pool/shard_watch.hpp"
#include "prefix/prefix_index.hpp"
#include "queue/fence_queue.hpp"
#include "queue/shard_order.hpp"

namespace kvpool {

/// Same operations as BlockPool, see there; a reservation is a plain number of units here.
template <template <class> class Atom = std::atomic, class Placement = CurrentCpu>
class BasicBlockPool {
 public:
  /// Blocks whose fence has passed are moved into the order in portions of this size.
  static constexpr std::size_t kFencePortion = 64;
  /// A shard's stack of blank blocks is left to its own processor up to this fraction of all blocks: what idles
  /// there is missing for content elsewhere, and emptying it costs locality.
  static constexpr std::uint32_t kIdleStack = 64;

  /// Blocks of a release whose lines are loaded while the ones before them are given back.
  static constexpr std::size_t kReleasePortion = 16;

  /// A block that a touch lists twice further apart gets a second unit, which comes back at the end.
  static constexpr std::size_t kTouchApart = 16;

  explicit BasicBlockPool(const BlockPoolOptions& options);
  ~BasicBlockPool();
  BasicBlockPool(const BasicBlockPool&) = delete;
  BasicBlockPool& operator=(const BasicBlockPool&) = delete;

  [[nodiscard]] const BlockPoolOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::uint32_t num_blocks() const noexcept { return protocol_.size(); }

  // capacity
  [[nodiscard]] std::uint32_t num_free_blocks() const noexcept;
  [[nodiscard]] PoolCounts counts() const noexcept;
  [[nodiscard]] PoolStats stats() const noexcept;
  [[nodiscard]] std::vector<PoolStats> shard_stats() const;
  [[nodiscard]] bool try_reserve(std::uint32_t count, std::uint32_t keep_free = 0);
  void give_back(std::uint32_t count) noexcept { capacity_.credit(count); }

  // references
  void allocate(std::span<BlockId> out);
  [[nodiscard]] bool get_new_blocks(std::span<BlockId> out);
  [[nodiscard]] bool touch(std::span<const BlockId> blocks);
  [[nodiscard]] bool pin(BlockHandle block, const BlockKey& key, std::uint32_t& units);
  [[nodiscard]] std::size_t pin_prefix(std::span<const BlockHandle> blocks, HashChain chain, GroupId group,
                                       std::uint32_t& units);
  bool free_blocks(std::span<const BlockId> blocks);
  bool free_blocks(std::span<const BlockId> blocks, std::uint64_t fence);
  bool free_blocks(std::span<const BlockHandle> blocks);
  void advance_fence(std::uint64_t value);

  // content
  [[nodiscard]] std::optional<BlockHandle> find(const BlockKey& key) const;
  [[nodiscard]] std::size_t find_prefix(HashChain chain, GroupId group, std::span<BlockHandle> out) const;
  void prefetch(const BlockKey& key) const noexcept { index_.prefetch(KeyWords(key).mixed()); }
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
  [[nodiscard]] std::optional<std::uint64_t> sharing_changes() const noexcept;
  [[nodiscard]] std::uint32_t ref_count(BlockId block) const noexcept;
  [[nodiscard]] BlockHandle handle(BlockId block) const noexcept;

  // events
  void append_event(KVEvent event);
  void append_event(EventDraft&& draft);
  [[nodiscard]] EventDraft draft_event() { return events_.draft(lane()); }
  [[nodiscard]] std::vector<KVEvent> take_events() { return events_.take(); }
  [[nodiscard]] EventBatch take_event_batch() noexcept { return events_.take_batch(); }

  // inspection, alone
  [[nodiscard]] BlockSnapshot snapshot(BlockId block) const;
  [[nodiscard]] std::vector<BlockId> free_order() const;
  [[nodiscard]] std::size_t num_cached_keys() const;
  [[nodiscard]] Status check_invariants() const;

 private:
  using Protocol = BlockProtocol<Atom>;
  using Order = ShardOrder<Atom>;
  using Fences = FenceQueue<Atom>;
  using Secondaries = SecondaryKeys<Atom>;
  struct Shard {
    Shard(std::uint32_t number, const PoolLayout& layout, TicketCodec codec, const BlockPoolOptions& options)
        : order(number, layout.ring_slots, codec, options.huge_pages), counters(options.enable_stats) {}
    Order order;
    ShardCounters<Atom> counters;
    ShardWatch<Atom> watch;
  };
  struct KeptKey {
    KeyWords key;
    std::uint32_t version;
  };
  struct Match {
    BlockHandle handle;
    std::uint64_t ordinal = 0;
    bool found = false;
  };

  [[nodiscard]] std::uint32_t lane() const noexcept {
    return layout_.shards == 1 ? 0 : Placement::hint() % layout_.shards;
  }
  [[nodiscard]] Shard& here() noexcept { return *shards_[lane()]; }
  [[nodiscard]] bool known(BlockId block, const char* function) const;
  void report(ContractBreach breach, const char* function, BlockId block) const;
  [[nodiscard]] BlockHandle handle_of(std::uint32_t block, BlockState state) const noexcept {
    return {BlockId{block}, state.generation(), number_};
  }
  [[nodiscard]] ReleaseTarget target() const noexcept {
    return options_.free_order == FreeOrder::append ? ReleaseTarget::order : ReleaseTarget::order_if_hashed;
  }

  [[nodiscard]] PoolCounts counted() const noexcept;
  static void note(ShardCounters<Atom>& counters, const OrderIncidents& incidents) noexcept;

  // references
  struct Collected {
    std::uint64_t stolen = 0;
    OrderIncidents incidents;
  };
  /// What the pins or touches of one call came to.
  struct PinTally {
    std::uint64_t pinned = 0;
    std::uint64_t revived = 0;   ///< of them, blocks that nobody referenced
    std::uint64_t unfenced = 0;  ///< of them, blocks that waited for a fence
    std::uint64_t lost = 0;
    std::uint64_t retries = 0;
    void count(BlockState before) noexcept {
      ++pinned;
      revived += before.refs() == 0 ? 1U : 0U;
      unfenced += before.fenced() ? 1U : 0U;
    }
  };
  void note(const PinTally& tally) noexcept;
  template <class OnClaimed>
  std::size_t collect_once(Shard& home, std::span<std::uint32_t> out, Collected& tally, OnClaimed&& on_claimed);
  std::size_t pop_stack(Shard& shard, std::span<std::uint32_t> out);
  // A release takes names of blocks: ids or handles.
  [[nodiscard]] static BlockId id_of(BlockId block) noexcept { return block; }
  [[nodiscard]] static BlockId id_of(const BlockHandle& block) noexcept { return block.id; }
  [[nodiscard]] static bool is_null(BlockId block) noexcept { return block == kNullBlock; }
  [[nodiscard]] static bool is_null(const BlockHandle& block) noexcept { return block.is_null(); }
  [[nodiscard]] std::optional<ContractBreach> breach_of(BlockId block) const noexcept;
  [[nodiscard]] std::optional<ContractBreach> breach_of(const BlockHandle& block) const noexcept;
  template <class Name>
  [[nodiscard]] static std::span<const Name> portion_of(std::span<const Name> blocks, std::size_t from) noexcept;
  template <class Name>
  void prefetch_lines(std::span<const Name> blocks) const noexcept;
  template <class Name>
  [[nodiscard]] std::uint32_t expected_places(std::span<const Name> blocks) const noexcept;
  /// What the blocks of one release came to.
  struct ReleaseTally {
    OrderIncidents incidents;
    RemovedKeys removed;
    typename Order::Stack::Chain blank;
    std::uint32_t ordered = 0;
    std::uint64_t fenced = 0;
    std::uint64_t shared = 0;
    bool good = true;
  };
  template <class OnReachable>
  void hand_over(Shard& home, ReleaseTally& tally, OnReachable&& on_reachable);
  template <class Name, class OnReachable>
  bool release(std::span<const Name> blocks, const std::uint64_t* fence, OnReachable&& on_reachable);
  [[nodiscard]] bool take_from_stacks(std::uint32_t block, std::uint64_t units);
  enum class Touch { done, no_capacity, gone };
  [[nodiscard]] Touch touch_one(std::uint32_t block, std::uint64_t& units, PinTally& tally);
  [[nodiscard]] std::optional<std::uint64_t> units_to_touch(std::span<const BlockId> blocks, std::size_t apart) const;

  // fences
  [[nodiscard]] Fences* fences() const noexcept { return fences_.load(std::memory_order_acquire); }  // [L1]
  Fences& install_fences();
  void unfence(std::uint32_t block, std::uint32_t ticket);
  void drain_fences(Fences& fences, std::size_t limit, bool walk);

  // content
  [[nodiscard]] Match match_value(std::uint32_t value, const KeyWords& key) const;
  [[nodiscard]] Match match(const KeyWords& key, std::uint64_t hash) const;
  [[nodiscard]] bool carries(std::uint32_t block, const KeyWords& key, BlockState state) const;
  [[nodiscard]] bool carries_besides(std::uint32_t block, const KeyWords& key) const;
  [[nodiscard]] bool pin_one(BlockHandle block, const KeyWords& words, std::uint32_t& units, PinTally& tally);
  struct Copies {
    bool any = false;
    std::uint64_t next_ordinal = 0;
  };
  /// Who answers for `key`, `except` left out.
  [[nodiscard]] Copies copies(const KeyWords& key, std::uint64_t hash, std::uint32_t except = kNullBlock.value()) const;
  /// What the registrations of one call came to.
  struct PublishTally {
    std::uint64_t published = 0;
    std::uint64_t further = 0;  ///< of them, keys of blocks that had one
    std::uint64_t duplicates = 0;
    std::uint64_t index_full = 0;
    std::uint64_t longest_probe = 0;
    std::uint32_t version = 0;  ///< of the last registration of a primary key
  };
  void note(const PublishTally& tally) noexcept;
  [[nodiscard]] bool accepts(GroupId group) const noexcept;
  /// One key on its way into the index.
  struct Registration {
    Registration() noexcept = default;
    Registration(const KeyWords& words, std::int64_t tokens, std::uint32_t number) noexcept : key(words) {
      complete(tokens, number);
    }
    void assign(const BlockHash& digest, GroupId group, std::int64_t tokens, std::uint32_t number) noexcept {
      key.assign(digest, group);
      complete(tokens, number);
    }
    KeyWords key;
    std::uint64_t hash;
    std::uint64_t covered;  ///< tokens
    std::uint32_t block;

   private:
    void complete(std::int64_t tokens, std::uint32_t number) noexcept {
      hash = key.mixed();
      covered = tokens > 0 ? static_cast<std::uint64_t>(tokens) : 0;
      block = number;
    }
  };
  void register_key(const Registration& next, bool keep_duplicates, PublishTally& tally);
  [[nodiscard]] bool register_primary(const Registration& next, BlockState seen, std::uint64_t ordinal,
                                      std::uint32_t home_slot, PublishTally& tally);
  [[nodiscard]] bool register_secondary(const Registration& next, std::uint64_t ordinal, std::uint32_t version,
                                        PublishTally& tally);
  bool take_content(std::uint32_t block, RemovedKeys* removed, std::optional<std::uint32_t> only = std::nullopt);
  [[nodiscard]] static bool answers_under(BlockState state, std::uint32_t ticket) noexcept {
    return state.hashed() && state.ticket() == ticket;
  }
  void erase_keys(std::uint32_t block, const KeyWords& primary, std::uint32_t slot, RemovedKeys* removed);
  void erase_keys(std::uint32_t block, RemovedKeys* removed);
  void sweep_secondaries(Secondaries& store, std::uint32_t block, RemovedKeys* removed);
  [[nodiscard]] std::vector<KeyWords> secondary_keys(std::uint32_t block) const;
  [[nodiscard]] std::uint64_t keys_elsewhere(std::uint32_t block) const;
  void note_removal(const KeyWords& key, RemovedKeys* removed) const;
  [[nodiscard]] Secondaries* secondaries() const noexcept {
    return secondaries_.load(std::memory_order_acquire);  // [L1]
  }
  Secondaries& install_secondaries();
  [[nodiscard]] RemovedKeys* collector(RemovedKeys& removed) noexcept {
    if (!options_.enable_events) return nullptr;
    if (removed.unattached()) removed.attach(events_.nodes(), lane());
    return &removed;
  }

  BlockPoolOptions options_;
  PoolLayout layout_;
  TicketCodec codec_;
  std::uint16_t number_;
  Protocol protocol_;
  PrefixIndex<Atom> index_;
  std::vector<std::unique_ptr<Shard>> shards_;
  static_assert(std::atomic<Fences*>::is_always_lock_free && std::atomic<Secondaries*>::is_always_lock_free);
  Atom<Fences*> fences_{nullptr};
  Atom<Secondaries*> secondaries_{nullptr};
  Capacity<Atom> capacity_;
  alignas(kCacheLineBytes) EventLog<Atom> events_;
};

}  // namespace kvpool

#include "pool/pool_content.hpp"
#include "pool/pool_fences.hpp"
#include "pool/pool_inspection.hpp"
#include "pool/pool_references.hpp"
#include "pool/pool_registration.hpp"
#include "pool/pool_release.hpp"
