// The scheduler itself: it must find what is wrong, count what it explored, and repeat what it found.
#include <gtest/gtest.h>

#include <memory>

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

}  // namespace
}  // namespace kvpool::model
