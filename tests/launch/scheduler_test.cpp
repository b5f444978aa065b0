#include <algorithm>
#include <random>

#include "tests/launch/scheduler_harness.hpp"

namespace kvpool::scheduler {
namespace {

SchedulerOptions options_of(std::int64_t threads, std::int64_t budget, std::int64_t max_running = 64) {
  SchedulerOptions options;
  options.num_threads = threads;
  options.token_budget = budget;
  options.max_running = max_running;
  return options;
}

TEST(Scheduler, PrefillsInChunksAndThenDecodes) {
  Rig rig(32);
  rig.add(20, 3);
  ContinuousScheduler scheduler(*rig.manager, rig.tokens, rig.hashing, rig.items, options_of(1, 8));
  const RunLog log = run_to_end(scheduler, 8);
  expect_complete(rig, log);
  // 8 + 8 + 4 prompt tokens, then two decodes: the third output is never fed back.
  EXPECT_EQ(log.steps.size(), 5U);
  EXPECT_EQ(scheduler.counters().computed_tokens, 22);
  EXPECT_EQ(scheduler.counters().output_tokens, 3);
  EXPECT_EQ(rig.manager->pool().counts().referenced, 0U);
}

TEST(Scheduler, RequestsJoinWhileOthersDecode) {
  Rig rig(64);
  rig.add(8, 10);
  rig.add(8, 10);
  rig.add(40, 2);
  ContinuousScheduler scheduler(*rig.manager, rig.tokens, rig.hashing, rig.items, options_of(1, 12));
  const RunLog log = run_to_end(scheduler, 12);
  expect_complete(rig, log);
  EXPECT_EQ(log.first_step.at(0), 0);
  EXPECT_EQ(log.first_step.at(1), 0);
  // The long prompt shares steps with the decodes of the other two.
  const auto shared =
      std::count_if(log.steps.begin(), log.steps.end(), [](const auto& step) { return step.size() == 3; });
  EXPECT_GE(shared, 3);
}

TEST(Scheduler, ALongPrefillDoesNotStopTheDecodesBehindIt) {
  Rig rig(200);
  rig.add(400, 1);
  rig.add(4, 6);
  ContinuousScheduler scheduler(*rig.manager, rig.tokens, rig.hashing, rig.items, options_of(1, 16));
  // The first request takes the whole first step; from the second on the short one gets its token in every step.
  const RunLog log = run_to_end(scheduler, 16);
  expect_complete(rig, log);
  const auto done = std::find(log.finished.begin(), log.finished.end(), 1);
  EXPECT_NE(done, log.finished.end());
}

TEST(Scheduler, SharedPrefixesAreComputedOnce) {
  Rig rig(256);
  for (int i = 0; i < 6; ++i) rig.add(44, 2, 40);
  ContinuousScheduler scheduler(*rig.manager, rig.tokens, rig.hashing, rig.items, options_of(1, 64));
  const RunLog log = run_to_end(scheduler, 64);
  expect_complete(rig, log);
  EXPECT_EQ(scheduler.counters().hit_tokens, 5 * 40);
  EXPECT_EQ(scheduler.counters().prompt_tokens, 6 * 44);
  EXPECT_EQ(scheduler.counters().computed_tokens, 6 * 45 - 5 * 40);
}

TEST(Scheduler, PreemptsTheYoungestAndResumesIt) {
  // Three requests of 8 + 32 tokens need 10 blocks each at their end; 16 blocks are there.
  Rig rig(16);
  for (int i = 0; i < 3; ++i) rig.add(8, 33);
  ContinuousScheduler scheduler(*rig.manager, rig.tokens, rig.hashing, rig.items, options_of(1, 32));
  const RunLog log = run_to_end(scheduler, 32);
  expect_complete(rig, log);
  EXPECT_GT(scheduler.counters().preemptions, 0);
  EXPECT_EQ(log.removed_unfinished, scheduler.counters().preemptions);
  // The oldest is never stopped, so it ends first; nobody overtakes for ever.
  EXPECT_EQ(log.finished, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(rig.manager->pool().counts().referenced, 0U);
}

TEST(Scheduler, ALaneAsksTheOwnerOfTheYoungest) {
  // One request per lane: nobody has a younger one of its own.
  Rig rig(16);
  for (int i = 0; i < 2; ++i) rig.add(8, 50, 0, i);
  ContinuousScheduler scheduler(*rig.manager, rig.tokens, rig.hashing, rig.items, options_of(2, 32));
  const RunLog log = run_to_end(scheduler, 32);
  expect_complete(rig, log);
  EXPECT_GT(scheduler.counters().preemptions, 0);
  EXPECT_EQ(log.finished.front(), 0);
}

TEST(Scheduler, RefusesWhatCanNeverFitWithItsNumbers) {
  Rig rig(8);
  rig.add(8, 2);
  rig.add(40, 2);  // 41 tokens: 11 blocks
  rig.add(32, 1);  // exactly 8
  rig.add(32, 2);  // 33 tokens: 9
  ContinuousScheduler scheduler(*rig.manager, rig.tokens, rig.hashing, rig.items, options_of(2, 16));
  const RunLog log = run_to_end(scheduler, 16);
  expect_complete(rig, log, {1, 3});
  const std::vector<Refusal> refusals = scheduler.refusals();
  ASSERT_EQ(refusals.size(), 2U);
  EXPECT_EQ(refusals[0].item.index, 1);
  EXPECT_EQ(refusals[0].blocks_needed, 11);
  EXPECT_EQ(refusals[0].blocks_usable, 8);
  EXPECT_NE(refusals[0].reason.find("request 1 (40 prompt and 2 output tokens) needs 11 blocks, the pool has 8"),
            std::string::npos);
  EXPECT_EQ(refusals[1].item.index, 3);
  EXPECT_EQ(refusals[1].blocks_needed, 9);
}

TEST(Scheduler, ALargeRequestIsNotOvertakenForEver) {
  // Request 3 needs the whole pool while small ones keep coming in the other lanes.
  Rig rig(12);
  for (int i = 0; i < 3; ++i) rig.add(8, 4, 0, 1);
  rig.add(44, 4, 0, 0);
  for (int i = 0; i < 60; ++i) rig.add(8, 4, 0, 1);
  ContinuousScheduler scheduler(*rig.manager, rig.tokens, rig.hashing, rig.items, options_of(2, 64));
  const RunLog log = run_to_end(scheduler, 64);
  expect_complete(rig, log);
  const auto place = std::find(log.finished.begin(), log.finished.end(), 3) - log.finished.begin();
  EXPECT_LT(place, 20) << "finished as number " << place;
}

TEST(Scheduler, RequestsWithoutOutputsEndWithTheirPrompt) {
  Rig rig(16);
  rig.add(10, 0);
  rig.add(10, 1);
  ContinuousScheduler scheduler(*rig.manager, rig.tokens, rig.hashing, rig.items, options_of(1, 64));
  const RunLog log = run_to_end(scheduler, 64);
  expect_complete(rig, log);
  EXPECT_EQ(log.outputs.at(0), 0);
  EXPECT_EQ(log.outputs.at(1), 1);
}

TEST(Scheduler, ManyThreadsUnderPressureLoseNothing) {
  for (const std::int64_t threads : {1, 2, 4, 7}) {
    Rig rig(40);
    std::mt19937 random(5);
    for (int i = 0; i < 80; ++i) {
      const auto family = static_cast<std::int64_t>(random() % 4);
      const auto length = static_cast<std::int64_t>(4 + random() % 60);
      rig.add(length, static_cast<std::int64_t>(1 + random() % 30), std::min<std::int64_t>(length, 24),
              i % 3 == 0 ? static_cast<std::int64_t>(random() % 9) : -1, family);
    }
    ContinuousScheduler scheduler(*rig.manager, rig.tokens, rig.hashing, rig.items, options_of(threads, 64, 16));
    const RunLog log = run_to_end(scheduler, 64);
    expect_complete(rig, log);
    EXPECT_GT(scheduler.counters().hit_tokens, 0);
    EXPECT_EQ(rig.manager->pool().counts().referenced, 0U) << threads << " threads";
    const Status invariants = rig.manager->pool().check_invariants();
    EXPECT_TRUE(invariants.ok()) << invariants.error().message;
  }
}

TEST(Scheduler, AnAbandonedRunGivesItsBlocksBack) {
  Rig rig(64);
  for (int i = 0; i < 8; ++i) rig.add(12, 30);
  {
    ContinuousScheduler scheduler(*rig.manager, rig.tokens, rig.hashing, rig.items, options_of(3, 32));
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(scheduler.next_step().ok());
    EXPECT_GT(rig.manager->pool().counts().referenced, 0U);
  }
  EXPECT_EQ(rig.manager->pool().counts().referenced, 0U);
}

TEST(LaneBoard, KnowsTheYoungestAndKeepsTheOldestWish) {
  LaneBoard board(3);
  EXPECT_EQ(board.youngest().index, LaneBoard::kNone);
  board.show(0, 5, 2);
  board.show(2, 9, 1);
  EXPECT_EQ(board.youngest().lane, 2U);
  EXPECT_EQ(board.youngest().index, 9);
  EXPECT_EQ(board.num_running(), 3);
  board.ask(2, 7);
  board.ask(2, 4);
  board.ask(2, 6);
  EXPECT_EQ(board.take_wish(2), 4);
  EXPECT_FALSE(board.take_wish(2).has_value());
  board.show_blocked(1, 3);
  EXPECT_TRUE(board.older_is_blocked(4));
  EXPECT_FALSE(board.older_is_blocked(3));
  board.report_shortage();
  EXPECT_TRUE(board.take_shortage());
  EXPECT_FALSE(board.take_shortage());
}

}  // namespace
}  // namespace kvpool::scheduler
