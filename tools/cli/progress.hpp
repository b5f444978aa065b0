// A progress bar with rate and remaining time, for people who watch a terminal.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace kvpool::tools {

/// Draws on stderr, only when that is a terminal and the work lasts over a second; otherwise it costs one relaxed
/// addition per advance() and nothing else. The bar is erased on destruction.
class Progress {
 public:
  /// `total` 0: unknown, the bar shows the count and the rate only.
  Progress(std::string label, std::string unit, std::uint64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Any thread, wait-free.
  void advance(std::uint64_t count = 1) noexcept { done_.fetch_add(count, std::memory_order_relaxed); }

 private:
  void draw_until_stopped();

  const std::string label_;
  const std::string unit_;
  const std::uint64_t total_;
  const std::chrono::steady_clock::time_point start_;
  std::atomic<std::uint64_t> done_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;  ///< under mutex_
  std::thread drawer_;
};

/// One line: `label [#####.....]  50% 1,234/s, 12 s left`. For total 0 count and rate only.
[[nodiscard]] std::string progress_line(const std::string& label, const std::string& unit, std::uint64_t done,
                                        std::uint64_t total, double seconds);

}  // namespace kvpool::tools
