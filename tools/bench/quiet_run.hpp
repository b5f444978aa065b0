// Whether a measurement had the machine to itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

namespace kvpool::tools {

/// Processor time of the whole machine and of this process between two points in time.
class CpuMeter {
 public:
  CpuMeter();

  /// Share (0..1) of all processors that other processes took since construction; empty where the system does not
  /// tell. The system counts in ticks of 10 ms, so spans under 100 ms say little.
  [[nodiscard]] std::optional<double> foreign_share() const;

 private:
  struct Times {
    double busy = 0;   ///< seconds, all processes
    double total = 0;  ///< seconds, all processors, idle time included
    double own = 0;    ///< seconds, this process
  };
  [[nodiscard]] static std::optional<Times> now();

  std::optional<Times> start_;
};

/// More than this and a run does not count.
inline constexpr double kMaxForeignShare = 0.06;
inline constexpr int kMaxTries = 5;

/// Repeats `run` until other processes left it alone, at most kMaxTries times. True: the last one was undisturbed.
bool run_quietly(const std::function<void()>& run);

}  // namespace kvpool::tools
