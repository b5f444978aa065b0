// Counters of prefix look-ups, raised by many scheduler threads.
#pragma once

#include <atomic>
#include <cstdint>

#include "kvpool/manager/kv_cache_manager.hpp"

namespace kvpool {

/// Each counter is exact; a take() during a record() may see only some of its three additions, the rest
/// comes with the next one.
class PrefixCacheCounters {
 public:
  void record(std::int64_t num_tokens, std::int64_t hits, bool preempted) noexcept {
    Trio& trio = preempted ? resumed_ : first_;
    trio.requests.fetch_add(1, std::memory_order_relaxed);
    trio.queries.fetch_add(num_tokens, std::memory_order_relaxed);
    trio.hits.fetch_add(hits, std::memory_order_relaxed);
  }

  void note_reset() noexcept { reset_.store(true, std::memory_order_relaxed); }

  [[nodiscard]] PrefixCacheStats take() noexcept {
    PrefixCacheStats stats;
    stats.reset = reset_.exchange(false, std::memory_order_relaxed);
    stats.requests = taken(first_.requests);
    stats.queries = taken(first_.queries);
    stats.hits = taken(first_.hits);
    stats.preempted_requests = taken(resumed_.requests);
    stats.preempted_queries = taken(resumed_.queries);
    stats.preempted_hits = taken(resumed_.hits);
    return stats;
  }

 private:
  struct Trio {
    std::atomic<std::int64_t> requests{0};
    std::atomic<std::int64_t> queries{0};
    std::atomic<std::int64_t> hits{0};
  };

  static std::int64_t taken(std::atomic<std::int64_t>& counter) noexcept {
    return counter.exchange(0, std::memory_order_relaxed);
  }

  Trio first_;
  Trio resumed_;
  std::atomic<bool> reset_{false};
};

}  // namespace kvpool
