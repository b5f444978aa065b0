// Tokens per scheduler step unit and per hash unit, derived from the groups.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvpool/config/kv_cache_config.hpp"
#include "kvpool/foundation/error.hpp"

namespace kvpool {

struct BlockSizeOptions {
  std::int64_t cache_block_size = 16;  ///< tokens; used when there is no group
  std::int64_t dcp_world_size = 1;
  bool enable_caching = true;
  bool has_connector = false;                     ///< KV of prefixes is also looked up outside
  std::optional<std::int64_t> prefix_match_unit;  ///< tokens; empty: as fine as all groups allow
};

struct BlockSizes {
  std::int64_t scheduler_block_size = 0;  ///< common multiple of all groups' block sizes, in tokens
  std::int64_t hash_block_size = 0;       ///< tokens per hash unit; divides scheduler_block_size
  bool operator==(const BlockSizes&) const = default;
};

/// Tokens of the sequence that one block of the group covers: block size times decode context
/// parallelism, except for state layers, whose state is whole on every rank.
[[nodiscard]] std::int64_t tokens_per_block(const KVCacheSpec& spec, std::int64_t dcp_world_size);

/// Errors: invalid_config naming the size that `prefix_match_unit` does not divide, or sizes whose common
/// multiple is too large. O(groups).
[[nodiscard]] Result<BlockSizes> resolve_block_sizes(std::span<const KVCacheGroup> groups,
                                                     const BlockSizeOptions& options);

}  // namespace kvpool
