// Durations of one kind of operation, and what an operator wants to know of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tools/cli/json_output.hpp"

namespace kvpool::tools {

class LatencySamples {
 public:
  using Clock = std::chrono::steady_clock;

  void add(Clock::duration duration) { nanoseconds_.push_back(static_cast<std::uint64_t>(duration.count())); }
  void append(const LatencySamples& other);
  [[nodiscard]] std::size_t size() const noexcept { return nanoseconds_.size(); }

  /// The sample below which a share of `q` of all samples lie (nearest rank), in microseconds; 0 without samples.
  [[nodiscard]] double percentile_us(double q) const;

  /// {"p50":..,"p99":..,"p999":..,"max":..} in microseconds.
  [[nodiscard]] Json to_json() const;

 private:
  void sort() const;
  mutable std::vector<std::uint64_t> nanoseconds_;
};

}  // namespace kvpool::tools
