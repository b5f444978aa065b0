// The outcome of planning: how many blocks, which tensors, which layers share a block table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvpool/config/kv_cache_spec.hpp"

namespace kvpool {

/// Layers that share one block table.
struct KVCacheGroup {
  std::vector<std::string> layer_names;
  KVCacheSpec spec;
  bool is_eagle_group = false;  ///< holds layers of a draft model: the last matched block is recomputed
  bool operator==(const KVCacheGroup&) const = default;
};

/// One allocation of device memory.
struct KVCacheTensor {
  std::int64_t size_bytes = 0;
  std::vector<std::string> shared_by;   ///< layers whose blocks live in this memory
  std::int64_t offset_bytes = 0;        ///< packed layout: first byte of the layer inside a block
  std::int64_t block_stride_bytes = 0;  ///< packed layout: bytes from one block to the next; 0: page size
  bool operator==(const KVCacheTensor&) const = default;
};

struct KVCacheConfig {
  std::int64_t num_blocks = 0;  ///< null block included
  std::vector<KVCacheTensor> tensors = {};
  std::vector<KVCacheGroup> groups;
  /// Sparse retention for window and state groups, in tokens: empty = keep every reachable block,
  /// 0 = boundaries only, r > 0 = additionally one checkpoint per r tokens.
  std::optional<std::int64_t> prefix_cache_retention_interval = {};
  bool operator==(const KVCacheConfig&) const = default;
};

}  // namespace kvpool
