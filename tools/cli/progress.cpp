#include "tools/cli/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace kvpool::tools {
namespace {

using namespace std::chrono_literals;

constexpr auto kQuietTime = 1000ms;
constexpr auto kRedrawEvery = 200ms;
constexpr std::uint64_t kBarWidth = 30;

}  // namespace

Progress::Progress(std::string label, std::string unit, std::uint64_t total)
    : label_(std::move(label)), unit_(std::move(unit)), total_(total), start_(std::chrono::steady_clock::now()) {
  if (isatty(STDERR_FILENO) != 0) {
    drawer_ = std::thread([this] { draw_until_stopped(); });
  }
}

Progress::~Progress() {
  if (!drawer_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  drawer_.join();
}

void Progress::draw_until_stopped() {
  bool drawn = false;
  std::unique_lock lock(mutex_);
  auto pause = std::chrono::milliseconds(kQuietTime);
  while (!wake_.wait_for(lock, pause, [this] { return stop_; })) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    fmt::print(stderr, "\r\x1b[K{}",
               progress_line(label_, unit_, done_.load(std::memory_order_relaxed), total_, elapsed.count()));
    std::fflush(stderr);
    drawn = true;
    pause = kRedrawEvery;
  }
  if (drawn) {
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
  }
}

std::string progress_line(const std::string& label, const std::string& unit, std::uint64_t done, std::uint64_t total,
                          double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0.0;
  if (total == 0) {
    return fmt::format("{} {} {}, {:.0f} {}/s", label, done, unit, rate, unit);
  }
  const std::uint64_t shown = std::min(done, total);
  const auto filled = static_cast<std::size_t>(static_cast<double>(shown) / static_cast<double>(total) *
                                               static_cast<double>(kBarWidth));
  const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
  std::string line = fmt::format("{} [{}] {:3.0f}% {:.0f} {}/s", label, bar,
                                 100.0 * static_cast<double>(shown) / static_cast<double>(total), rate, unit);
  if (rate > 0) {
    line += fmt::format(", {:.0f} s left", static_cast<double>(total - shown) / rate);
  }
  return line;
}

}  // namespace kvpool::tools
