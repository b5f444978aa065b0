// Runs the workload `prefix` on one pool with any number of threads, untimed, timed, or timed without preemptions.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tools/bench/interleave.hpp"
#include "tools/bench/prefix_workload.hpp"

namespace kvpool::tools {

enum class Timing {
  none,
  wall,         ///< every call, as the caller waits for it
  undisturbed,  ///< calls during which the thread lost its processor against its will are left out
};

/// Records calls. One per thread.
template <Timing timing>
class CallTimer {
 public:
  template <class Call>
  void operator()(Call&& call) {
    if constexpr (timing == Timing::none) {
      call();
    } else {
      const long switches = timing == Timing::undisturbed ? involuntary_switches() : 0;
      const auto start = std::chrono::steady_clock::now();
      call();
      const auto end = std::chrono::steady_clock::now();
      if (timing == Timing::wall || involuntary_switches() == switches) {
        histogram.record(end - start);
      }
    }
  }

  LatencyHistogram histogram;

 private:
  static long involuntary_switches() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
  }
};

/// A pool, filled and warm, with one worker per thread.
template <class Pool>
class PrefixRunner {
 public:
  /// About 85 % of the blocks are referenced between two calls.
  template <class... Arguments>
  PrefixRunner(const PrefixTable& table, unsigned threads, std::uint32_t num_blocks, Arguments&&... arguments)
      : num_blocks_(num_blocks), pool_(num_blocks, std::forward<Arguments>(arguments)...) {
    const std::size_t live = num_blocks / kBlocksPerLiveRequest / threads;
    for (unsigned i = 0; i < threads; ++i) {
      workers_.push_back(std::make_unique<PrefixWorker>(table, i, std::max<std::size_t>(live, 1)));
    }
    CallTimer<Timing::none> untimed;
    const std::size_t rounds = 3 * num_blocks / kNewBlocks / threads;
    for (std::size_t i = 0; i < rounds; ++i) {
      for (auto& worker : workers_) {
        worker->step(pool_, untimed);
      }
    }
  }

  template <Timing timing>
  [[nodiscard]] Sample run(double seconds) {
    const std::size_t threads = workers_.size();
    std::vector<CallTimer<timing>> timers(threads);
    std::vector<std::thread> running;
    std::latch ready(static_cast<std::ptrdiff_t>(threads) + 1);
    std::atomic<bool> stop{false};
    for (std::size_t i = 0; i < threads; ++i) {
      workers_[i]->counts = {};
      running.emplace_back([&, i] {
        CallTimer<timing> timer;
        ready.arrive_and_wait();
        while (!stop.load(std::memory_order_relaxed)) {
          workers_[i]->step(pool_, timer);
        }
        timers[i] = std::move(timer);
      });
    }
    ready.arrive_and_wait();
    const auto start = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    stop.store(true, std::memory_order_relaxed);
    for (std::thread& thread : running) {
      thread.join();
    }
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    return sample_of(wall.count(), timers);
  }

  [[nodiscard]] Pool& pool() noexcept { return pool_; }

 private:
  static constexpr std::uint32_t kBlocksPerLiveRequest = 82;

  template <class Timers>
  Sample sample_of(double seconds, const Timers& timers) const {
    PrefixCounts counts;
    LatencyHistogram all;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      counts += workers_[i]->counts;
      all.merge(timers[i].histogram);
    }
    Sample sample;
    if (all.count() > 0) {
      sample.latency_us = all.percentiles();
    } else {
      sample.ops_per_second = static_cast<double>(counts.block_ops) / seconds;
      sample.ns_per_block = seconds * 1e9 / static_cast<double>(std::max<std::uint64_t>(counts.block_ops, 1));
      const auto looked_up = static_cast<double>(counts.requests * kPrefixBlocks);
      sample.more["hit_rate"] = looked_up > 0 ? static_cast<double>(counts.hit_blocks) / looked_up : 0;
      sample.more["referenced"] = 1 - (static_cast<double>(pool_.num_free()) / static_cast<double>(num_blocks_ - 1));
    }
    return sample;
  }

  std::uint32_t num_blocks_;
  Pool pool_;
  std::vector<std::unique_ptr<PrefixWorker>> workers_;
};

/// A contender that keeps one runner of `Pool` for all its runs.
template <class Pool, Timing timing = Timing::none, class... Arguments>
[[nodiscard]] Contender prefix_contender(const BenchPlan& plan, const PrefixTable& table, std::string row,
                                         std::string pool, unsigned threads, Arguments... arguments) {
  const std::uint32_t num_blocks = plan.smoke ? kPoolBlocks / 16 : kPoolBlocks;
  auto runner = std::make_shared<PrefixRunner<Pool>>(table, threads, num_blocks, arguments...);
  const double seconds = plan.seconds;
  return {{std::move(row)}, std::move(pool), threads, [runner, seconds] {
            return std::vector<Sample>{runner->template run<timing>(seconds)};
          }};
}

}  // namespace kvpool::tools
