#include "kvpool/manager/caching_metrics.hpp"

namespace kvpool {

void CachingMetrics::observe(const PrefixCacheStats& stats) {
  if (stats.reset) {
    recent_.clear();
    sum_ = {};
  }
  if (stats.requests == 0) return;  // an idle interval must not push others out
  recent_.push_back({stats.requests, stats.queries, stats.hits});
  sum_.requests += stats.requests;
  sum_.queries += stats.queries;
  sum_.hits += stats.hits;
  while (recent_.size() > 1 && sum_.requests > max_recent_requests_) {
    const Observation oldest = recent_.front();
    recent_.pop_front();
    sum_.requests -= oldest.requests;
    sum_.queries -= oldest.queries;
    sum_.hits -= oldest.hits;
  }
}

double CachingMetrics::hit_rate() const noexcept {
  if (sum_.queries == 0) return 0.0;
  return static_cast<double>(sum_.hits) / static_cast<double>(sum_.queries);
}

}  // namespace kvpool
