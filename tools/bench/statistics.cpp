#include "tools/bench/statistics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kvpool::tools {

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Percentiles median(std::span<const Percentiles> runs) {
  const auto of = [&](double Percentiles::*member) {
    std::vector<double> values;
    values.reserve(runs.size());
    for (const Percentiles& run : runs) {
      values.push_back(run.*member);
    }
    return median(std::move(values));
  };
  return {of(&Percentiles::p50), of(&Percentiles::p99), of(&Percentiles::p999), of(&Percentiles::p9999),
          of(&Percentiles::max)};
}

std::size_t LatencyHistogram::bucket_of(std::uint64_t value) noexcept {
  constexpr std::uint64_t kLinear = std::uint64_t{1} << (kSubBits + 1);
  if (value < kLinear) {
    return static_cast<std::size_t>(value);
  }
  const auto shift = static_cast<unsigned>(std::bit_width(value)) - (kSubBits + 1);
  return (static_cast<std::size_t>(shift) << kSubBits) + static_cast<std::size_t>(value >> shift);
}

double LatencyHistogram::upper_bound(std::size_t bucket) noexcept {
  constexpr std::size_t kLinear = std::size_t{1} << (kSubBits + 1);
  if (bucket < kLinear) {
    return static_cast<double>(bucket);
  }
  const std::size_t shift = (bucket >> kSubBits) - 1;
  const std::size_t mantissa = bucket - (shift << kSubBits);
  return std::ldexp(static_cast<double>(mantissa + 1), static_cast<int>(shift)) - 1;
}

void LatencyHistogram::record(std::chrono::nanoseconds duration) noexcept {
  const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
  ++buckets_[bucket_of(value)];
  ++count_;
  max_ = std::max(max_, value);
}

void LatencyHistogram::merge(const LatencyHistogram& other) noexcept {
  for (std::size_t i = 0; i < kBuckets; ++i) {
    buckets_[i] += other.buckets_[i];
  }
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
}

double LatencyHistogram::quantile(double share) const noexcept {
  const auto wanted =
      std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count_))));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets && count_ > 0; ++i) {
    seen += buckets_[i];
    if (seen >= wanted) {
      return std::min(upper_bound(i), static_cast<double>(max_));
    }
  }
  return static_cast<double>(max_);
}

Percentiles LatencyHistogram::percentiles() const noexcept {
  constexpr double kMicro = 1e-3;
  return {quantile(0.5) * kMicro, quantile(0.99) * kMicro, quantile(0.999) * kMicro, quantile(0.9999) * kMicro,
          static_cast<double>(max_) * kMicro};
}

}  // namespace kvpool::tools
