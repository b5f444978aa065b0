// Real threads, recorded histories: every one must be explained by the promises of the pool. How many are explained
// even with every call at one moment is printed and has a floor.
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <iostream>

#include "pool/locked_block_pool.hpp"
#include "stress/history_checker.hpp"
#include "stress/strict_checker.hpp"
#include "tests/concurrency/pool_workload.hpp"

namespace kvpool::testing {
namespace {

using stress::Action;
using stress::CallKind;
using stress::Moment;

constexpr std::uint32_t kBlocks = 6;
constexpr std::uint32_t kKeys = 3;
constexpr std::uint64_t kNever = ~std::uint64_t{0} - 1;

/// One counter that every thread draws its moments from. A call that begins after another has returned also sees what
/// that one did, so the draws acquire and release.
class Clock {
 public:
  Moment tick() { return now_.fetch_add(1, std::memory_order_acq_rel); }

 private:
  std::atomic<Moment> now_{1};
};

/// One thread's calls into a tiny pool, written down.
template <class Pool>
class Recorder {
 public:
  Recorder(std::uint32_t number, std::uint64_t seed) : number_(number), random_(seed * 1'000'003 + number) {}

  void play(Pool& pool, Clock& clock, bool with_fences) {
    pool_ = &pool;
    clock_ = &clock;
    for (int i = 0; i < 12; ++i) step(with_fences);
    if (!held_.empty()) release(0);
  }
  [[nodiscard]] stress::History take() { return std::exchange(history_, {}); }

 private:
  struct Held {
    BlockId block;
    std::uint32_t key;
  };

  void step(bool with_fences) {
    switch (random_() % (with_fences ? 7 : 5)) {
      case 0:
      case 1: allocate(static_cast<std::uint32_t>(1 + random_() % 3)); break;
      case 2: pin(name()); break;
      case 3: evict(name()); break;
      case 4: release(0); break;
      case 5: release(1 + random_() % 3); break;
      default: advance(1 + random_() % 3);
    }
  }
  std::uint32_t name() { return 1 + static_cast<std::uint32_t>(random_() % kKeys); }

  void allocate(std::uint32_t count) {
    std::vector<BlockId> blocks(count);
    const Moment invoked = clock_->tick();
    const bool granted = pool_->get_new_blocks(blocks);
    const Moment returned = clock_->tick();
    history_.allocations.push_back({count, granted, number_, invoked, returned});
    if (!granted) blocks.clear();
    note({CallKind::allocate, granted, count, {}, 0, {}, invoked, returned}, blocks);
    for (const BlockId block : blocks) {
      note(Action::claim, block, 0, invoked, returned);
      held_.push_back({block, 0});
    }
    if (granted && random_() % 2 == 0) publish(held_.back(), name());
  }
  void publish(Held& held, std::uint32_t key) {
    const Moment invoked = clock_->tick();
    const bool published = pool_->publish(held.block, make_key(key), 1);
    const Moment returned = clock_->tick();
    EXPECT_TRUE(published) << "an owner's publish was refused";
    held.key = key;
    note(Action::publish, held.block, key, invoked, returned);
    note({CallKind::publish, published, 0, {key}, 0, {}, invoked, returned}, {held.block});
  }
  void pin(std::uint32_t key) {
    const Moment invoked = clock_->tick();
    auto found = pool_->find(make_key(key));
    bool pinned = false;
    while (found) {  // a handle that was recycled says nothing about other copies: look again
      const bool is_free = pool_->ref_count(found->id) == 0;
      auto units = pool_->try_reserve(is_free ? 1 : 0);
      const bool covered = units.has_value();
      if (!covered) units = pool_->try_reserve(0);
      pinned = pool_->pin(*found, make_key(key), *units);
      if (pinned) break;
      const auto again = pool_->find(make_key(key));
      if (again == found && !covered) break;  // there, and not to be had: no capacity
      found = again;
    }
    const Moment returned = clock_->tick();
    if (!pinned) {
      history_.misses.push_back({key, number_, invoked, returned});
      note({CallKind::pin, false, 0, {key}, 0, {}, invoked, returned}, {});
      return;
    }
    note(Action::pin, found->id, key, invoked, returned);
    note({CallKind::pin, true, 0, {key}, 0, {}, invoked, returned}, {found->id});
    held_.push_back({found->id, key});
  }
  void evict(std::uint32_t key) {
    const auto found = pool_->find(make_key(key));
    if (!found) return;
    const Moment invoked = clock_->tick();
    const bool had_content = pool_->unpublish(found->id);
    const Moment returned = clock_->tick();
    note(Action::unpublish, found->id, had_content ? 1 : 0, invoked, returned);
    note({CallKind::unpublish, had_content, 0, {}, 0, {}, invoked, returned}, {found->id});
  }
  void release(std::uint64_t fence) {
    if (held_.empty()) return;
    std::vector<BlockId> blocks;
    for (auto held = held_.rbegin(); held != held_.rend(); ++held) blocks.push_back(held->block);
    held_.clear();
    const Moment invoked = clock_->tick();
    const bool good = fence > 0 ? pool_->free_blocks(blocks, fence) : pool_->free_blocks(blocks);
    const Moment returned = clock_->tick();
    EXPECT_TRUE(good) << "a release of held blocks was refused";
    for (const BlockId block : blocks) note(Action::release, block, 0, invoked, returned);
    // When the fence passes, others may still have the blocks in hand: they may be missing until the end.
    if (fence > 0) history_.withheld.push_back({static_cast<std::uint32_t>(blocks.size()), invoked, kNever});
    note({CallKind::release, true, 0, {}, fence, {}, invoked, returned}, blocks);
  }
  void advance(std::uint64_t fence) {
    const Moment invoked = clock_->tick();
    pool_->advance_fence(fence);
    note({CallKind::advance_fence, true, 0, {}, fence, {}, invoked, clock_->tick()}, {});
  }

  void note(Action action, BlockId block, std::uint32_t key, Moment invoked, Moment returned) {
    history_.actions.push_back({action, block.value(), key, number_, invoked, returned});
  }
  void note(stress::WholeCall call, const std::vector<BlockId>& blocks) {
    for (const BlockId block : blocks) call.blocks.push_back(block.value());
    history_.calls.push_back(std::move(call));
  }

  Pool* pool_ = nullptr;
  Clock* clock_ = nullptr;
  std::uint32_t number_;
  std::mt19937_64 random_;
  std::vector<Held> held_;
  stress::History history_;
};

void give_way(int /*signal*/) { sched_yield(); }

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
  std::vector<Recorder<Pool>> recorders;
  for (std::uint32_t i = 0; i < num_threads; ++i) recorders.emplace_back(i, seed);
  HistoryTotals totals;
  std::unique_ptr<Pool> pool = std::make_unique<Pool>(options);
  std::unique_ptr<Clock> clock = std::make_unique<Clock>();
  const auto judge = [&]() noexcept {
    stress::History history;
    for (auto& recorder : recorders) history.append(recorder.take());
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
        recorder.play(*pool, *clock, round % 4 == 0);
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
