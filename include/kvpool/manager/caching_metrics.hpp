// Hit rate over the most recent requests.
#pragma once

#include <cstdint>
#include <deque>

#include "kvpool/manager/kv_cache_manager.hpp"

namespace kvpool {

/// Sums of the latest observations, about `max_recent_requests` requests of them: whole observations leave,
/// the oldest first, while the sum is above the limit and more than one is left. Not thread-safe.
class CachingMetrics {
 public:
  explicit CachingMetrics(std::int64_t max_recent_requests = 1000) noexcept
      : max_recent_requests_(max_recent_requests) {}

  /// Adds one interval's counters (first-time look-ups only). A reset forgets what was before it.
  void observe(const PrefixCacheStats& stats);

  /// Hit tokens / queried tokens, 0 when nothing was queried.
  [[nodiscard]] double hit_rate() const noexcept;

  [[nodiscard]] std::int64_t requests() const noexcept { return sum_.requests; }
  [[nodiscard]] std::int64_t queries() const noexcept { return sum_.queries; }
  [[nodiscard]] std::int64_t hits() const noexcept { return sum_.hits; }
  [[nodiscard]] bool empty() const noexcept { return recent_.empty(); }

 private:
  struct Observation {
    std::int64_t requests = 0;
    std::int64_t queries = 0;
    std::int64_t hits = 0;
  };

  std::int64_t max_recent_requests_;
  std::deque<Observation> recent_;
  Observation sum_;
};

}  // namespace kvpool
