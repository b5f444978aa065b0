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

struct KVCacheManagerOptions {
  std::int64_t max_model_len = 0;                    ///< tokens
  std::int64_t scheduler_block_size = 0;             ///< tokens; multiple of every group's block size
  std::int64_t hash_block_size = 0;                  ///< tokens per hash unit; divides scheduler_block_size
  std::optional<std::int64_t> max_in_flight_tokens;  ///< empty: max_model_len
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

/// Copy the content of `source` to `target` before the next step writes.
struct BlockCopy {
  BlockId source;
  BlockId target;
};

struct PrefixCacheStats {
  bool reset = false;
  std::int64_t requests = 0, queries = 0, hits = 0;  ///< queries and hits in tokens
  std::int64_t preempted_requests = 0, preempted_queries = 0, preempted_hits = 0;
};

class KVCacheManager;

/// Everything the cache keeps for one request. Owned by one scheduler thread; must be freed (or the
/// manager's free called) before it is destroyed, and must not outlive its manager.
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

  /// Longest prefix that every group can reuse, at most num_tokens - 1. Changes nothing.
  [[nodiscard]] PrefixHit get_computed_blocks(const Request& request) const;

  /// Errors: invalid_argument (neither new nor external tokens, negative numbers, hits for a sequence
  /// that already has blocks). Shortage is an outcome, not an error. All-or-nothing across groups.
  [[nodiscard]] Result<AllocatedSlots> allocate_slots(Request& request, Sequence& sequence,
                                                      const AllocateSlots& arguments);

  /// Publishes what is full within the first `num_computed_tokens` (after an asynchronous load).
  void cache_blocks(Request& request, Sequence& sequence, std::int64_t num_computed_tokens);

  /// Gives all blocks back, tail first, group after group. The sequence can be used again.
  void free(Sequence& sequence);

  void remove_skipped_blocks(Request& request, Sequence& sequence, std::int64_t num_computed_tokens);

  [[nodiscard]] std::vector<std::vector<BlockId>> get_block_ids(const Sequence& sequence) const;
  [[nodiscard]] std::span<const BlockId> block_table(const Sequence& sequence, GroupId group) const;

  [[nodiscard]] std::vector<std::int64_t> get_num_common_prefix_blocks(const Sequence& sequence) const;

  // --- by request -------------------------------------------------------------------------------------

  [[nodiscard]] Result<AllocatedSlots> allocate_slots(Request& request, const AllocateSlots& arguments);
  void cache_blocks(Request& request, std::int64_t num_computed_tokens);
  void free(const Request& request);
  void remove_skipped_blocks(Request& request, std::int64_t num_computed_tokens);
  [[nodiscard]] std::vector<std::vector<BlockId>> get_block_ids(const std::string& request_id) const;
  [[nodiscard]] std::vector<std::int64_t> get_num_common_prefix_blocks(const std::string& request_id) const;

  // --- whole cache --------------------------------------------------------------------------------------

  void new_step_starts();
  bool evict_blocks(std::span<const BlockId> blocks);
  [[nodiscard]] bool reset_prefix_cache();
  [[nodiscard]] std::vector<KVEvent> take_events();
  [[nodiscard]] std::vector<BlockCopy> take_block_copies();

  void record_prefix_cache_stats(const Request& request, std::int64_t hit_tokens);
  [[nodiscard]] std::optional<PrefixCacheStats> make_prefix_cache_stats();

 private:
  struct Impl;
  explicit KVCacheManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvpool
