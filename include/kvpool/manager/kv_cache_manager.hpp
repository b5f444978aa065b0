// KVCacheManager: requests and tokens above, blocks below.
//
// The same operations twice. With a Sequence, which one scheduler thread owns: no table, no lock. By
// request: the sequence is found in a concurrent table by the request's id (blocking per bucket).
// Requests of different threads may be processed at the same time; one request by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvpool/block/block_id.hpp"
#include "kvpool/config/kv_cache_config.hpp"
#include "kvpool/foundation/error.hpp"
#include "kvpool/manager/request.hpp"
#include "kvpool/pool/block_pool.hpp"

namespace kvpool {

class ResidencyMetrics;

struct KVCacheManagerOptions {
  std::int64_t max_model_len = 0;                         ///< tokens
  std::int64_t scheduler_block_size = 16;                 ///< tokens; multiple of every group's block size
  std::int64_t hash_block_size = 16;                      ///< tokens per hash unit; divides scheduler_block_size
  std::optional<std::int64_t> max_in_flight_tokens = {};  ///< empty: max_model_len
  bool enable_caching = true;
  bool use_eagle = false;
  std::int64_t num_prefill_lookahead = 0;
  bool log_stats = false;
  bool enable_kv_cache_events = false;
  std::int64_t dcp_world_size = 1;
  double watermark = 0.0;  ///< fraction of all blocks kept free when requests are admitted, [0, 1)
  FreeOrder free_order = FreeOrder::split;
  DuplicatePolicy duplicates = DuplicatePolicy::keep;
  RemovalEvents removal_events = RemovalEvents::each_copy;
  std::uint32_t num_shards = 0;  ///< of the pool; 1: exact order
  /// Collect the ids of new blocks whose old content must be overwritten with zeros before use; whoever
  /// sets it drains them every step with take_new_block_ids().
  bool collect_blocks_to_zero = false;
  std::shared_ptr<ResidencyMetrics> residency_metrics = {};  ///< empty: none
};

/// Block tables of all groups, in order of logical position. Handles are hints until pinned.
struct KVCacheBlocks {
  std::vector<std::vector<BlockHandle>> groups;
  [[nodiscard]] bool empty() const noexcept;
  /// Block ids per group; null entries are kNullBlock.
  [[nodiscard]] std::vector<std::vector<BlockId>> block_ids() const;
};

/// Outcome of a prefix look-up. Nothing is pinned.
struct PrefixHit {
  KVCacheBlocks blocks;
  std::int64_t num_computed_tokens = 0;
  std::int64_t shared_prefix_boundary = 0;  ///< to be kept in the request; 0: none
  /// Only from get_computed_blocks_for_connector: some group has less than num_computed_tokens.
  bool diverged = false;
};

struct AllocateSlots {
  std::int64_t num_new_tokens = 0;
  std::int64_t num_new_computed_tokens = 0;            ///< as the look-up answered
  const KVCacheBlocks* new_computed_blocks = nullptr;  ///< of the look-up; null: none
  std::int64_t num_lookahead_tokens = 0;
  std::int64_t num_external_computed_tokens = 0;
  bool delay_cache_blocks = false;
  std::int64_t num_encoder_tokens = 0;
  bool full_sequence_must_fit = false;
  std::int64_t reserved_blocks = 0;
  bool has_scheduled_reqs = true;

  /// All tokens of `request` that `hit` does not cover. `hit` must outlive the call that takes this.
  [[nodiscard]] static AllocateSlots for_rest_of(const Request& request, const PrefixHit& hit) noexcept {
    return {.num_new_tokens = request.num_tokens() - hit.num_computed_tokens,
            .num_new_computed_tokens = hit.num_computed_tokens,
            .new_computed_blocks = &hit.blocks};
  }
};

enum class AllocateOutcome {
  allocated,
  no_capacity,  ///< does not fit now; only blocks that left a window were released
  prefix_lost,  ///< another thread recycled a block of the hit since the look-up: nothing changed, look up again
};

struct AllocatedSlots {
  AllocateOutcome outcome = AllocateOutcome::no_capacity;
  /// New blocks per group, targets of block copies first; hits are not among them.
  std::vector<std::vector<BlockId>> new_blocks;
};

/// Copy the content of `source` to `target` before the next step writes. Both carry one extra reference;
/// whoever takes the copy gives both back (BlockPool::free_blocks, source first) when it is done.
struct BlockCopy {
  BlockId source;
  BlockId target;
};

/// The block that holds a prompt's last state, which ends inside a block: worth keeping elsewhere.
struct PartialTailOffload {
  GroupId group{};
  BlockId block{};
  std::int64_t boundary = 0;  ///< tokens covered
};

struct PrefixCacheStats {
  bool reset = false;
  std::int64_t requests = 0, queries = 0, hits = 0;  ///< queries and hits in tokens
  std::int64_t preempted_requests = 0, preempted_queries = 0, preempted_hits = 0;
};

class KVCacheManager;

/// Everything the cache keeps for one request. Owned by one scheduler thread. Destroying it gives its
/// blocks back; it must not outlive its manager. Two threads inside one sequence at the same time are
/// detected: the second call is refused and reported as ContractBreach::wrong_thread.
class Sequence {
 public:
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  ~Sequence();

 private:
  friend class KVCacheManager;
  struct State;
  explicit Sequence(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

class KVCacheManager {
 public:
  /// Errors: invalid_config with the name of the offending option.
  [[nodiscard]] static Result<std::unique_ptr<KVCacheManager>> create(KVCacheConfig config,
                                                                      KVCacheManagerOptions options);
  ~KVCacheManager();

  [[nodiscard]] BlockPool& pool() noexcept;
  [[nodiscard]] const KVCacheConfig& config() const noexcept;
  [[nodiscard]] const KVCacheManagerOptions& options() const noexcept;
  [[nodiscard]] double usage() const noexcept;

  // --- by sequence (no table, no lock) ----------------------------------------------------------------

  [[nodiscard]] Sequence make_sequence();

  /// False: caching is off or the request does not read; its look-ups answer 0.
  [[nodiscard]] bool prefix_cache_lookup_enabled(const Request& request) const noexcept;

  /// Longest prefix that every group can reuse, at most num_tokens - 1. Changes nothing; for a request
  /// with full_event_report the hit is announced again. Lock-free, O(hit blocks).
  [[nodiscard]] PrefixHit get_computed_blocks(const Request& request) const;

  /// The same for a connector that can load what single groups miss: `blocks` per group as far as each
  /// group goes, num_computed_tokens as far as full attention goes, `diverged` when another group is shorter.
  /// The blocks serve as hints; for an allocation with `diverged` set, the connector loads the missing part.
  [[nodiscard]] PrefixHit get_computed_blocks_for_connector(const Request& request) const;

  /// The first `num_tokens` of a hit. Errors: invalid_argument (no multiple of every group's block size,
  /// or longer than the hit).
  [[nodiscard]] Result<KVCacheBlocks> truncate_computed_blocks(const KVCacheBlocks& blocks,
                                                               std::int64_t num_tokens) const;

  /// Errors: invalid_argument (neither new nor external tokens, numbers that are negative or beyond 2^48, hits for a
  /// sequence that already has blocks, more computed tokens than max_model_len). Shortage is an outcome, not an
  /// error. All-or-nothing across groups. Lock-free; O(hits + new blocks), whatever the request's length.
  [[nodiscard]] Result<AllocatedSlots> allocate_slots(Request& request, Sequence& sequence,
                                                      const AllocateSlots& arguments);

  /// What allocate_slots would answer now, without doing it: allocated or no_capacity.
  [[nodiscard]] Result<AllocateOutcome> can_allocate_slots(const Request& request, const Sequence& sequence,
                                                           const AllocateSlots& arguments) const;

  /// Blocks that the request still needs to reach its full length, with the caps of window groups: what
  /// an engine reserves for a load in progress.
  [[nodiscard]] std::int64_t num_blocks_to_full_length(const Request& request, const Sequence& sequence) const;

  /// Publishes what is full within the first `num_computed_tokens` (after an asynchronous load).
  /// O(newly full blocks).
  void cache_blocks(Request& request, Sequence& sequence, std::int64_t num_computed_tokens);

  /// Gives all blocks back, tail first, group after group. The sequence can be used again. O(blocks).
  void free(Sequence& sequence);

  /// Forgets the sequence's blocks without giving them back: pins, then the blocks of all groups in
  /// order. Once nothing uses them, the caller passes them to BlockPool::free_blocks in reverse order
  /// (DeferredFrees does so).
  [[nodiscard]] std::vector<BlockId> pop_blocks_for_free(Sequence& sequence);

  /// Gives back what no later token reads, once `num_computed_tokens` are processed.
  void remove_skipped_blocks(Request& request, Sequence& sequence, std::int64_t num_computed_tokens);

  [[nodiscard]] std::vector<std::vector<BlockId>> get_block_ids(const Sequence& sequence) const;
  [[nodiscard]] std::span<const BlockId> block_table(const Sequence& sequence, GroupId group) const;

  /// get_block_ids with every attention group cut to the blocks of the first `num_tokens`.
  [[nodiscard]] std::vector<std::vector<BlockId>> get_block_ids_for_computed_tokens(const Sequence& sequence,
                                                                                    std::int64_t num_tokens) const;

  /// Tokens of the sequence that are cached in every group: a look-up would find them now.
  [[nodiscard]] std::int64_t estimate_cached_tokens(const Sequence& sequence) const;

  /// Per group: leading blocks that every request of the group holds (0 for all but full attention). Remembers what
  /// it found in the sequence: O(groups) while no request begins or ends to share a block, after that once O(answer).
  [[nodiscard]] std::vector<std::int64_t> get_num_common_prefix_blocks(const Sequence& sequence) const;

  /// Prompt tails worth offloading; each gets a reference that is given back by free().
  [[nodiscard]] std::vector<PartialTailOffload> take_partial_tail_offloads(Sequence& sequence);

  /// Ids of the blocks of tokens [start, end) in groups whose blocks are zeroed before use.
  [[nodiscard]] std::vector<BlockId> get_zeroing_block_ids_in_range(const Sequence& sequence, std::int64_t start,
                                                                    std::int64_t end) const;

  /// Queues the blocks from token `start` (a block boundary) on for zeroing again (a load failed).
  void record_blocks_for_zeroing(const Sequence& sequence, std::int64_t start);

  // --- by request -------------------------------------------------------------------------------------
  // The same with the sequence looked up by the request's id. A call holds the id's table entry while it
  // runs, so calls for one id wait for each other; calls for different ids wait at most for a look-up.

  [[nodiscard]] Result<AllocatedSlots> allocate_slots(Request& request, const AllocateSlots& arguments);
  void cache_blocks(Request& request, std::int64_t num_computed_tokens);
  void free(const Request& request);
  [[nodiscard]] std::vector<BlockId> pop_blocks_for_free(const Request& request);
  void remove_skipped_blocks(Request& request, std::int64_t num_computed_tokens);
  [[nodiscard]] std::vector<std::vector<BlockId>> get_block_ids(const std::string& request_id) const;
  [[nodiscard]] std::vector<std::int64_t> get_num_common_prefix_blocks(const std::string& request_id) const;
  [[nodiscard]] std::int64_t estimate_cached_tokens(const std::string& request_id) const;
  [[nodiscard]] std::vector<PartialTailOffload> take_partial_tail_offloads(const std::string& request_id);

  // --- whole cache --------------------------------------------------------------------------------------

  /// States published during the former step may be read from now on.
  void new_step_starts();
  bool evict_blocks(std::span<const BlockId> blocks);
  /// Forgets all content; false while any request holds blocks. Excludes others: call it alone.
  [[nodiscard]] bool reset_prefix_cache();
  /// Everything announced so far, each store with its group's kind and window. One caller at a time.
  [[nodiscard]] std::vector<KVEvent> take_events();
  /// Copies to make before the next step writes, group after group; see BlockCopy for the references.
  [[nodiscard]] std::vector<BlockCopy> take_block_copies();

  /// Whether the configuration needs zeroed blocks (state groups, or several element types).
  [[nodiscard]] bool needs_kv_cache_zeroing() const noexcept;
  /// Drains the ids to zero, group after group (see KVCacheManagerOptions::collect_blocks_to_zero).
  [[nodiscard]] std::vector<BlockId> take_new_block_ids();

  /// Blocks that a group holds for ever (sinks); empty for most.
  [[nodiscard]] std::span<const BlockId> permanent_blocks(GroupId group) const;

  /// Counts a look-up of an admitted request. Wait-free.
  void record_prefix_cache_stats(const Request& request, std::int64_t hit_tokens);
  /// Takes the counters since the last call; empty without log_stats.
  [[nodiscard]] std::optional<PrefixCacheStats> make_prefix_cache_stats();

 private:
  struct Impl;
  explicit KVCacheManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvpool
