// Real threads, recorded histories: every one must be explained by the promises of the pool. How many are explained
// even with every call at one moment is printed and has a floor.
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <csignal>
#include <iostream>

#include "kvpool/pool/locked_block_pool.hpp"
#include "stress/history_checker.hpp"
#include "stress/strict_checker.hpp"
#include "tests/concurrency/pool_recorder.hpp"
#include "tests/concurrency/pool_workload.hpp"

namespace kvpool::testing {
namespace {

using stress::Moment;

constexpr std::uint32_t kBlocks = 6;

/// How often this thread is yet to give way: some times in each game, and not while it judges one. On a busy machine
/// every time may last for milliseconds.
constexpr int kYieldsPerGame = 16;
thread_local volatile std::sig_atomic_t yields_left = 0;

void give_way(int /*signal*/) {
  if (yields_left == 0) return;
  yields_left = yields_left - 1;
  sched_yield();
}

/// Makes the thread that creates it give way every few microseconds, at whatever instruction it is: calls overlap also
/// where there are fewer processors than threads.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action {};
    action.sa_handler = &give_way;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR2, &action, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGUSR2;
    event._sigev_un._tid = gettid();
    timer_create(CLOCK_MONOTONIC, &event, &timer_);
    itimerspec every{};
    every.it_interval.tv_nsec = 47'000;
    every.it_value.tv_nsec = 47'000;
    timer_settime(timer_, 0, &every, nullptr);
  }
  ~Interruptions() { timer_delete(timer_); }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  timer_t timer_{};
};

struct HistoryTotals {
  std::uint64_t histories = 0;
  std::uint64_t calls = 0;
  std::uint64_t overlapping = 0;  ///< calls that began before another had returned
  std::uint64_t refusals = 0;
  std::uint64_t strict = 0;
  std::uint64_t broken = 0;
  std::string first_broken;
};

std::uint64_t count_overlapping(const stress::History& history) {
  std::vector<std::pair<Moment, Moment>> spans;
  for (const auto& call : history.calls) spans.emplace_back(call.invoked, call.returned);
  std::sort(spans.begin(), spans.end());
  std::uint64_t overlapping = 0;
  Moment open_until = 0;
  for (const auto& [invoked, returned] : spans) {
    overlapping += invoked < open_until ? 1 : 0;
    open_until = std::max(open_until, returned);
  }
  return overlapping;
}

/// The threads play `rounds` tiny games on fresh pools, all of them at the same time; between two games one thread
/// judges what was recorded.
template <class Pool>
HistoryTotals play(std::uint32_t num_threads, std::uint32_t shards, std::size_t rounds, std::uint64_t seed) {
  BlockPoolOptions options;
  options.num_blocks = kBlocks;
  options.num_shards = shards;
  options.ring_slots = 8;
  const auto with_fences = [](std::size_t round) { return round % 4 == 0; };
  const auto duplicates = [](std::size_t round) {
    return round % 4 == 1 ? DuplicatePolicy::skip : DuplicatePolicy::keep;
  };
  std::vector<Recorder<Pool>> recorders;
  for (std::uint32_t i = 0; i < num_threads; ++i) recorders.emplace_back(i, seed);
  HistoryTotals totals;
  std::unique_ptr<Pool> pool = std::make_unique<Pool>(options);
  std::unique_ptr<Clock> clock = std::make_unique<Clock>();
  const auto judge = [&]() noexcept {
    stress::History history;
    for (auto& recorder : recorders) history.append(recorder.take());
    history.skips_duplicates = options.duplicates == DuplicatePolicy::skip;
    history.dropped = pool->stats().ring_full;
    const auto verdict = stress::check_history(history, kBlocks - 1);
    ++totals.histories;
    totals.calls += history.calls.size();
    totals.overlapping += count_overlapping(history);
    totals.refusals += verdict.refusals;
    if (!verdict.allowed && totals.broken++ == 0) totals.first_broken = verdict.reason;
    const auto strict = stress::check_strictly(history, kBlocks - 1);
    totals.strict += strict == stress::Strictness::linearizable ? 1 : 0;
    pool->advance_fence(kNever);
    if (const Status status = pool->check_invariants(); !status.ok() && totals.broken++ == 0) {
      totals.first_broken = status.error().message;
    }
    options.duplicates = duplicates(totals.histories);
    pool = std::make_unique<Pool>(options);
    clock = std::make_unique<Clock>();
  };
  std::atomic<std::uint64_t> ready{0};
  std::barrier together(static_cast<std::ptrdiff_t>(num_threads), judge);
  std::vector<std::thread> threads;
  threads.reserve(recorders.size());
  for (auto& recorder : recorders) {
    threads.emplace_back([&] {
      const Interruptions interruptions;
      for (std::size_t round = 0; round < rounds; ++round) {
        // A barrier wakes threads one after the other: wait for the last, so that the games overlap.
        ready.fetch_add(1, std::memory_order_relaxed);
        while (ready.load(std::memory_order_relaxed) < (round + 1) * num_threads) std::this_thread::yield();
        yields_left = kYieldsPerGame;
        recorder.play(*pool, *clock, with_fences(round));
        yields_left = 0;
        together.arrive_and_wait();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return totals;
}

template <class Pool>
class PoolHistories : public ::testing::Test {};

using Pools = ::testing::Types<BlockPool, LockedBlockPool>;
TYPED_TEST_SUITE(PoolHistories, Pools);

TYPED_TEST(PoolHistories, RealThreadsDoWhatTheSpecificationAllows) {
  HistoryTotals sum;
#ifdef KVPOOL_SANITIZED_BUILD
  const std::size_t rounds = scaled(40, 250'000);
#else
  const std::size_t rounds = scaled(150, 250'000);
#endif
  for (const std::uint32_t threads : {2U, 4U}) {
    for (const std::uint32_t shards : {1U, 2U}) {
      const HistoryTotals totals = play<TypeParam>(threads, shards, rounds, threads * 10 + shards);
      ASSERT_EQ(totals.broken, 0U) << threads << " threads, " << shards << " shards: " << totals.first_broken;
      sum.histories += totals.histories;
      sum.calls += totals.calls;
      sum.overlapping += totals.overlapping;
      sum.refusals += totals.refusals;
      sum.strict += totals.strict;
    }
  }
  std::cout << "histories: " << sum.histories << " of " << sum.calls << " calls, " << sum.overlapping
            << " of them overlapping, " << sum.refusals
            << " refusals and misses, all as promised; strictly linearizable "
            << 100.0 * static_cast<double>(sum.strict) / static_cast<double>(sum.histories) << " %\n";
  // How much of the time calls overlap, and so the share, depends on the machine: the figure is printed, and only a
  // share that no overlap explains is a failure.
  EXPECT_GE(sum.strict * 2, sum.histories);
}

}  // namespace
}  // namespace kvpool::testing
