// What a KVCacheManager is made of.
#pragma once

#include <tbb/concurrent_hash_map.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvpool/manager/kv_cache_manager.hpp"
#include "manager/cache_coordinator.hpp"
#include "manager/sequence_access.hpp"
#include "manager/statistics.hpp"

namespace kvpool {

/// Of one group, as told in events.
struct GroupEventInfo {
  std::string kind;
  std::optional<std::int64_t> sliding_window;  ///< tokens
};

struct KVCacheManager::Impl {
  /// Blocking per bucket, and per id while a call for it runs. std::allocator: sanitizers see every block.
  using Table = tbb::concurrent_hash_map<std::string, std::unique_ptr<Sequence>, tbb::tbb_hash_compare<std::string>,
                                         std::allocator<std::pair<const std::string, std::unique_ptr<Sequence>>>>;

  Impl(KVCacheConfig kv_config, KVCacheManagerOptions manager_options);

  KVCacheConfig config;
  KVCacheManagerOptions options;
  BlockPool pool;
  std::unique_ptr<CacheCoordinator> coordinator;
  std::int64_t watermark_blocks = 0;
  bool zeroing = false;
  std::vector<GroupEventInfo> event_info;
  PrefixCacheCounters counters;
  Table sequences;  ///< last: its sequences give their blocks back to all of the above
};

}  // namespace kvpool
