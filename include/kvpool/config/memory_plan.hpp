// From layers and bytes to a KVCacheConfig for every rank.
//
// One number rules: bytes_per_block, what one block id costs on one rank. The pool is
// floor(available / bytes_per_block) blocks, of which reserved_blocks never serve a request; a request
// needs blocks_per_request; everything that is refused, fitted or reported compares these.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvpool/config/kv_cache_config.hpp"
#include "kvpool/config/kv_cache_groups.hpp"
#include "kvpool/config/kv_cache_spec.hpp"
#include "kvpool/foundation/error.hpp"

namespace kvpool {

/// What one rank brings.
struct WorkerMemory {
  std::vector<NamedLayer> layers;    ///< its own; pipeline stages hold different ones
  std::int64_t available_bytes = 0;  ///< for KV cache, as profiled
};

struct PlanOptions {
  RequestLimits limits;  ///< max_model_len: what the engine wants to serve
  GroupingOptions grouping;
  /// Lower max_model_len to what fits instead of refusing.
  bool auto_fit_max_model_len = false;
  /// Use this many blocks, whatever the available bytes say.
  std::optional<std::int64_t> num_gpu_blocks_override;
  /// Requests of full length that must fit at the same time.
  std::int64_t min_concurrent_requests = 1;
  /// Draft modules that predict several tokens (multi-module MTP): window layers keep one token less than
  /// this beyond their window. 0: none.
  std::int64_t num_mtp_tokens = 0;
  /// One slab per block across layers (needs several groups), for transfers of whole blocks.
  bool cross_layer_blocks = false;
  std::optional<std::int64_t> prefix_cache_retention_interval;
};

struct MemoryPlan {
  std::vector<KVCacheConfig> workers;  ///< in the order given; num_blocks is the same everywhere
  std::vector<KVCacheGroup> groups;    ///< of all ranks together
  std::int64_t max_model_len = 0;      ///< tokens; lowered when auto-fit had to
};

/// Plans all ranks at once, so that a block id exists everywhere and means the same.
/// Errors: invalid_config (options or layers that contradict themselves or each other, naming the layer),
/// unsupported (page sizes), out_of_memory with `rank` set: no room for the KV cache at all, or not for
/// min_concurrent_requests of full length, naming bytes, blocks and the longest length that would fit.
[[nodiscard]] Result<MemoryPlan> get_kv_cache_configs(std::span<const WorkerMemory> workers,
                                                      const PlanOptions& options);

/// One rank's tensors for `available_bytes`. `groups` are the rank's projected groups. Without groups:
/// one block (the null block) and no tensor. Errors: invalid_config (an override below 1).
[[nodiscard]] Result<KVCacheConfig> get_kv_cache_config_from_groups(std::span<const KVCacheGroup> groups,
                                                                    std::int64_t available_bytes,
                                                                    const PlanOptions& options = {});

/// What the scheduler works with: rank 0's configuration, mixed groups represented by one layer's spec, a
/// group is EAGLE when it is on any rank. Errors: invalid_config when there is no rank, or when ranks have
/// different numbers of blocks or groups.
[[nodiscard]] Result<KVCacheConfig> generate_scheduler_kv_cache_config(std::span<const KVCacheConfig> workers);

/// Bytes that one block id costs on a rank with these (projected) groups. 0: the rank holds no layer.
[[nodiscard]] std::int64_t bytes_per_block(std::span<const KVCacheGroup> groups);

/// Blocks of all groups together that one request of limits.max_model_len can hold.
[[nodiscard]] std::int64_t blocks_per_request(std::span<const KVCacheGroup> groups, const RequestLimits& limits);

/// Blocks that never serve a request: the null block, and attention sinks.
[[nodiscard]] std::int64_t reserved_blocks(std::span<const KVCacheGroup> groups);

/// Largest length L <= limits.max_model_len such that `concurrency` requests of L tokens fit into a pool
/// of num_blocks; 0 when not even one token fits. Monotone in num_blocks. O(groups x log length).
[[nodiscard]] std::int64_t estimate_max_model_len(std::span<const KVCacheGroup> groups, const RequestLimits& limits,
                                                  std::int64_t num_blocks, std::int64_t concurrency = 1);

struct CapacityReport {
  std::int64_t blocks_per_request = 0;
  double max_concurrency = 0;   ///< requests of full length; infinite when a request needs no block
  std::int64_t num_tokens = 0;  ///< max_concurrency x max_model_len
};

/// For logs and operators. As usual in such reports the null block is not subtracted.
[[nodiscard]] CapacityReport capacity_report(const KVCacheConfig& config, const RequestLimits& limits);

/// Bytes to allocate for all tensors; tensors of the packed layout share one allocation.
[[nodiscard]] std::int64_t allocated_bytes(const KVCacheConfig& config);

}  // namespace kvpool
