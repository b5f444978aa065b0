#include "stress/stall.hpp"

#include <csignal>
#include <ctime>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

namespace kvpool::stress {
namespace {

std::atomic<std::int64_t> stall_ns{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "read in a signal handler");

thread_local std::atomic<bool> put_off{false};
thread_local std::atomic<bool> put_off_one{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

void suspend_here(int /*signal*/) {
  if (put_off.load(std::memory_order_relaxed)) {
    put_off_one.store(true, std::memory_order_relaxed);
    return;
  }
  const std::int64_t ns = stall_ns.load(std::memory_order_relaxed);
  timespec left{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
  while (nanosleep(&left, &left) != 0) {
  }
}

}  // namespace

StallsPutOff::StallsPutOff() { put_off.store(true, std::memory_order_relaxed); }

StallsPutOff::~StallsPutOff() {
  put_off.store(false, std::memory_order_relaxed);
  if (put_off_one.exchange(false, std::memory_order_relaxed)) suspend_here(SIGUSR1);
}

Staller::Staller(std::vector<pthread_t> threads, std::vector<Progress>& progress, std::uint64_t seed)
    : threads_(std::move(threads)), progress_(&progress), random_(seed) {
  struct sigaction action {};
  action.sa_handler = &suspend_here;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
}

Staller::Sample Staller::sample(std::size_t without) const {
  Sample sum{};
  for (std::size_t thread = 0; thread < progress_->size(); ++thread) {
    if (thread == without) continue;
    for (std::size_t i = 0; i < kOperations; ++i) {
      sum[i] += (*progress_)[thread].completed[i].load(std::memory_order_relaxed);
    }
  }
  return sum;
}

StallReport Staller::run(const std::function<bool()>& over) {
  using Clock = std::chrono::steady_clock;
  StallReport report;
  report.fewest.fill(~std::uint64_t{0});
  std::vector<double> quiet_rates;
  std::vector<double> stall_rates;
  const auto rate_during = [this](std::size_t victim, std::chrono::milliseconds span, Sample& done) {
    const Sample before = sample(victim);
    const auto begin = Clock::now();
    std::this_thread::sleep_for(span);
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    const Sample after = sample(victim);
    for (std::size_t i = 0; i < kOperations; ++i) done[i] = after[i] - before[i];
    return static_cast<double>(std::accumulate(done.begin(), done.end(), std::uint64_t{0})) / elapsed;
  };
  while (!over()) {
    const std::size_t victim = random_() % threads_.size();
    Sample done{};
    quiet_rates.push_back(rate_during(victim, std::chrono::milliseconds(50), done));
    const auto span = std::chrono::milliseconds(100 + random_() % 201);
    stall_ns.store(std::chrono::nanoseconds(span).count(), std::memory_order_relaxed);
    pthread_kill(threads_[victim], SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // let the handler begin
    if ((*progress_)[victim].inside_pool.load(std::memory_order_relaxed)) ++report.inside_pool;
    stall_rates.push_back(rate_during(victim, span - std::chrono::milliseconds(10), done));
    ++report.stalls;
    if (std::accumulate(done.begin(), done.end(), std::uint64_t{0}) == 0) ++report.frozen;
    for (std::size_t i = 0; i < kOperations; ++i) report.fewest[i] = std::min(report.fewest[i], done[i]);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const Sample all = sample(threads_.size());
  for (std::size_t i = 0; i < kOperations; ++i) report.used[i] = all[i] > 0;
  if (!quiet_rates.empty()) {
    std::sort(quiet_rates.begin(), quiet_rates.end());
    std::sort(stall_rates.begin(), stall_rates.end());
    const double median = quiet_rates[quiet_rates.size() / 2];
    report.slowest_rate_ratio = stall_rates.front() / median;
    report.median_rate_ratio = stall_rates[stall_rates.size() / 2] / median;
  }
  return report;
}

std::string to_text(const StallReport& report) {
  std::string text = "stalls " + std::to_string(report.stalls) + ", inside the pool " +
                     std::to_string(report.inside_pool) + ", frozen " + std::to_string(report.frozen) +
                     ", rate of the others / median without stalls: slowest " +
                     std::to_string(report.slowest_rate_ratio) + ", median " +
                     std::to_string(report.median_rate_ratio) + "\nfewest operations of the others in one stall:";
  for (std::size_t i = 0; i < kOperations; ++i) {
    if (report.used[i]) text += " " + std::string(kOperationNames[i]) + " " + std::to_string(report.fewest[i]);
  }
  return text;
}

}  // namespace kvpool::stress
