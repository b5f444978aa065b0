// Medians and latency percentiles.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace kvpool::tools {

/// Median of a copy; the mean of the two middle ones for an even count; 0 for none.
[[nodiscard]] double median(std::vector<double> values);

struct Percentiles {
  double p50 = 0, p99 = 0, p999 = 0, p9999 = 0, max = 0;  ///< microseconds
};

/// Percentile by percentile.
[[nodiscard]] Percentiles median(std::span<const Percentiles> runs);

/// Counts durations in buckets whose width is at most 1/64 of their value, so that recording costs no memory and
/// a percentile is exact to 1.6 %. Not thread-safe: one per thread, merged afterwards.
class LatencyHistogram {
 public:
  void record(std::chrono::nanoseconds duration) noexcept;
  void merge(const LatencyHistogram& other) noexcept;
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Duration that `share` (0..1) of the recorded ones do not exceed, in nanoseconds; 0 without any.
  [[nodiscard]] double quantile(double share) const noexcept;
  [[nodiscard]] Percentiles percentiles() const noexcept;

 private:
  static constexpr unsigned kSubBits = 6;
  static constexpr std::size_t kBuckets = std::size_t{64 - kSubBits + 1} << kSubBits;

  [[nodiscard]] static std::size_t bucket_of(std::uint64_t value) noexcept;
  [[nodiscard]] static double upper_bound(std::size_t bucket) noexcept;

  std::vector<std::uint64_t> buckets_ = std::vector<std::uint64_t>(kBuckets);
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace kvpool::tools
