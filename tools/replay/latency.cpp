#include "tools/replay/latency.hpp"

#include <algorithm>
#include <cmath>

namespace kvpool::tools {

void LatencySamples::append(const LatencySamples& other) {
  nanoseconds_.insert(nanoseconds_.end(), other.nanoseconds_.begin(), other.nanoseconds_.end());
}

void LatencySamples::sort() const {
  if (!std::is_sorted(nanoseconds_.begin(), nanoseconds_.end())) {
    std::sort(nanoseconds_.begin(), nanoseconds_.end());
  }
}

double LatencySamples::percentile_us(double q) const {
  if (nanoseconds_.empty()) {
    return 0.0;
  }
  sort();
  const double rank = std::ceil(q * static_cast<double>(nanoseconds_.size()));
  const auto index = static_cast<std::size_t>(std::clamp(rank, 1.0, static_cast<double>(nanoseconds_.size()))) - 1;
  return static_cast<double>(nanoseconds_[index]) / 1000.0;
}

Json LatencySamples::to_json() const {
  return Json{{"p50", percentile_us(0.5)},
              {"p99", percentile_us(0.99)},
              {"p999", percentile_us(0.999)},
              {"max", percentile_us(1.0)}};
}

}  // namespace kvpool::tools
