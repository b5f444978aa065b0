// The scheduler itself: it must find what is wrong, count what it explored, and repeat what it found.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "tests/model/atomic.hpp"
#include "tests/model/explore.hpp"

namespace kvpool::model {
namespace {

struct Counter {
  Atomic<int> value{0};
  Atomic<int> lock{0};
};

Case lost_update() {
  auto counter = std::make_shared<Counter>();
  const auto add = [counter] {
    const int seen = counter->value.load();
    counter->value.store(seen + 1);
  };
  return {{add, add}, {}, [counter] { require(counter->value.load() == 2, "an update was lost"); }};
}

Case correct_update() {
  auto counter = std::make_shared<Counter>();
  const auto add = [counter] { counter->value.fetch_add(1); };
  return {{add, add}, {}, [counter] { require(counter->value.load() == 2, "an update was lost"); }};
}

Case spin_lock() {
  auto counter = std::make_shared<Counter>();
  const auto add = [counter] {
    while (counter->lock.exchange(1) != 0) {
    }
    counter->value.store(counter->value.load() + 1);
    counter->lock.store(0);
  };
  return {{add, add}, {}, [counter] { require(counter->value.load() == 2, "an update was lost"); }};
}

TEST(Scheduler, ExhaustiveSearchFindsALostUpdateWithOnePreemption) {
  EXPECT_TRUE(explore_exhaustively(lost_update, 0, 1000).ok);
  const Exploration found = explore_exhaustively(lost_update, 1, 1000);
  ASSERT_FALSE(found.ok);
  EXPECT_NE(found.failure.find("an update was lost"), std::string::npos);
}

TEST(Scheduler, RandomSearchFindsALostUpdate) { EXPECT_FALSE(explore_randomly(lost_update, 1000, 1).ok); }

TEST(Scheduler, ExploresEveryScheduleOfASmallCaseOnce) {
  // two threads with two steps each (start, access), interleaved freely: the first decision picks a thread, then
  // every pause may switch
  const Exploration all = explore_exhaustively(correct_update, 10, 1000);
  EXPECT_TRUE(all.ok);
  EXPECT_GE(all.schedules, 6U);
  EXPECT_LT(all.schedules, 30U);
}

TEST(Scheduler, AFailingRunIsReplayedFromItsTrace) {
  const Exploration found = explore_randomly(lost_update, 1000, 7);
  ASSERT_FALSE(found.ok);
  Scheduler scheduler;
  Replay replay(found.failing_run.trace);
  const RunResult again = scheduler.run(lost_update, replay);
  EXPECT_FALSE(again.ok);
  EXPECT_EQ(again.trace, found.failing_run.trace);
}

TEST(Scheduler, FreezingAThreadExposesALock) {
  const Exploration frozen = freeze_everywhere(spin_lock, 2, 500);
  ASSERT_FALSE(frozen.ok);
  EXPECT_NE(frozen.failure.find("somebody waits"), std::string::npos);
}

TEST(Scheduler, FreezingAThreadDoesNotDisturbALockFreeUpdate) { EXPECT_TRUE(freeze_everywhere(correct_update, 2).ok); }

TEST(Scheduler, InvariantsAreCheckedAfterEveryStep) {
  const auto factory = [] {
    auto counter = std::make_shared<Counter>();
    return Case{{[counter] {
                  counter->value.store(5);
                  counter->value.store(0);
                }},
                [counter] { require(counter->value.load() != 5, "five was visible"); },
                {}};
  };
  EXPECT_FALSE(explore_randomly(factory, 3, 1).ok);
}

TEST(Scheduler, TheReducedSearchFindsWhatTheFullOneFinds) {
  ReducedExhaustive without_preemption(0);
  EXPECT_TRUE(explore_with(without_preemption, lost_update, 1000).ok);
  ReducedExhaustive one_preemption(1);
  const Exploration found = explore_with(one_preemption, lost_update, 1000);
  ASSERT_FALSE(found.ok);
  EXPECT_NE(found.failure.find("an update was lost"), std::string::npos);
  const Exploration all = explore_reduced(correct_update, 10, 1000);
  EXPECT_TRUE(all.ok && all.complete);
}

/// A few threads that do something at random to three words and note what they see, in two calls each.
struct RandomProgram {
  struct Access {
    int kind;
    std::size_t word;
  };
  std::vector<std::vector<Access>> threads;

  explicit RandomProgram(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    threads.resize(2 + random() % 2);
    const std::size_t length = threads.size() == 2 ? 6 : 4;
    for (auto& thread : threads) {
      for (std::size_t i = 0; i < length; ++i) {
        thread.push_back({static_cast<int>(random() % 6), random() % (1 + seed % 3)});
      }
    }
  }

  struct World {
    std::array<Atomic<std::uint32_t>, 3> words;
    std::vector<std::vector<std::uint32_t>> seen;
    std::vector<std::vector<std::size_t>> behind;  ///< of each call: how many of each thread had returned before
    std::vector<std::size_t> returned;
  };

  static std::uint32_t access(Atomic<std::uint32_t>& word, int kind, std::uint32_t number) {
    std::uint32_t expected = 0;
    switch (kind) {
      case 0: return word.load();
      case 1: word.store(number); return 0;
      case 2: return word.exchange(number);
      case 3: return word.compare_exchange_strong(expected, number) ? 1 : expected;
      case 4: word.fetch_add(1); return 0;
      default: return word.fetch_add(2);
    }
  }

  /// What can come of the program: everything that threads saw, which calls returned before which began, the words.
  [[nodiscard]] CaseFactory case_into(std::set<std::vector<std::uint64_t>>& outcomes) const {
    return [this, &outcomes] {
      auto world = std::make_shared<World>();
      world->seen.resize(threads.size());
      world->returned.assign(threads.size(), 0);
      world->behind.resize(2 * threads.size());
      Case test;
      for (std::size_t t = 0; t < threads.size(); ++t) {
        test.threads.push_back([this, world, t] {
          const std::vector<Access>& mine = threads[t];
          for (std::size_t call = 0; call < 2; ++call) {
            Scheduler::call_boundary(true);
            world->behind[2 * t + call] = world->returned;
            for (std::size_t i = call * mine.size() / 2; i < (call + 1) * mine.size() / 2; ++i) {
              const auto number = static_cast<std::uint32_t>(10 * (t + 1) + i);
              world->seen[t].push_back(access(world->words[mine[i].word], mine[i].kind, number));
            }
            Scheduler::call_boundary(false);
            ++world->returned[t];
          }
        });
      }
      test.at_end = [world, &outcomes] {
        std::vector<std::uint64_t> outcome;
        for (const auto& thread : world->seen) outcome.insert(outcome.end(), thread.begin(), thread.end());
        for (const auto& call : world->behind) outcome.insert(outcome.end(), call.begin(), call.end());
        for (const auto& word : world->words) outcome.push_back(word.load());
        outcomes.insert(std::move(outcome));
      };
      return test;
    };
  }
};

TEST(Scheduler, TheReducedSearchReachesEveryOutcomeOfTheFullOne) {
  std::uint64_t full_runs = 0;
  std::uint64_t reduced_runs = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const RandomProgram program(seed);
    for (const int preemptions : {0, 1, 2, 3}) {
      if (program.threads.size() == 3 && preemptions == 3) continue;
      std::set<std::vector<std::uint64_t>> outcomes;
      std::set<std::vector<std::uint64_t>> reduced_outcomes;
      const Exploration full = explore_exhaustively(program.case_into(outcomes), preemptions, 1'000'000);
      ASSERT_TRUE(full.complete);
      ReducedExhaustive strategy(preemptions);
      const Exploration reduced = explore_with(strategy, program.case_into(reduced_outcomes), 1'000'000);
      ASSERT_TRUE(reduced.complete);
      EXPECT_EQ(reduced_outcomes, outcomes) << "program " << seed << ", " << preemptions << " preemptions";
      full_runs += full.schedules;
      reduced_runs += reduced.schedules;
    }
  }
  EXPECT_LT(reduced_runs, full_runs);
  std::cout << full_runs << " schedules, reduced " << reduced_runs << std::endl;
}

}  // namespace
}  // namespace kvpool::model
