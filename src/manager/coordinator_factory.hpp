// From a configuration to a coordinator with its managers: all rules about what fits together.
#pragma once

#include <memory>

#include "kvpool/config/kv_cache_config.hpp"
#include "kvpool/foundation/error.hpp"
#include "kvpool/manager/kv_cache_manager.hpp"
#include "manager/cache_coordinator.hpp"

namespace kvpool {

/// Errors: invalid_config or unsupported; the message starts with the key at fault.
[[nodiscard]] Status validate_manager_config(const KVCacheConfig& config, const KVCacheManagerOptions& options);

/// Whether blocks must be overwritten with zeros before use: state groups, or several element types.
[[nodiscard]] bool needs_zeroing(const KVCacheConfig& config);

/// Precondition: validate_manager_config succeeded; the pool is fresh.
[[nodiscard]] std::unique_ptr<CacheCoordinator> make_coordinator(const KVCacheConfig& config,
                                                                 const KVCacheManagerOptions& options, BlockPool& pool);

}  // namespace kvpool
