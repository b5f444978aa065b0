// The first line of an op script: which cache it drives.
#pragma once

#include <string>

#include "kvpool/config/kv_cache_config.hpp"
#include "kvpool/manager/kv_cache_manager.hpp"
#include "kvpool/prefix/block_hasher.hpp"
#include "tools/exec/fields.hpp"

namespace kvpool::tools {

struct ScriptConfig {
  KVCacheConfig cache;
  KVCacheManagerOptions manager;  ///< one shard: the order of free blocks is exact
  HashAlgorithm hash_algorithm = HashAlgorithm::sha256_cbor;
  std::string hash_seed;
};

/// Throws InputError for missing, unknown or mistyped keys, numbers outside their range and combinations that the
/// format rules out, naming the key. What only the manager can judge is left to KVCacheManager::create.
[[nodiscard]] ScriptConfig read_script_config(Fields& fields);

}  // namespace kvpool::tools
