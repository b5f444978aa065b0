// Block tables that come apart are noticed within the interval, with rank, sequence and index.
#include <gtest/gtest.h>

#include <chrono>

#include "kvpool/multigpu/divergence_monitor.hpp"
#include "thread_ranks.hpp"

namespace kvpool {
namespace {

using namespace std::chrono_literals;
using testing::on_thread_ranks;

DivergenceOptions every(std::uint32_t steps, std::uint64_t kept = 1U << 20U) { return {steps, 20s, kept}; }

/// 40 changes a step: sequences 0..9, four entries each.
BlockTableChange change_at(std::uint64_t step, std::uint32_t i) {
  return {i / 4, static_cast<std::uint32_t>(step * 4 + i % 4), static_cast<std::int64_t>(step * 40 + i + 1)};
}

TEST(DivergenceMonitor, EqualTablesRaiseNoAlarm) {
  on_thread_ranks(4, [](Communicator& comm) {
    DivergenceMonitor monitor(comm, every(8));
    int comparisons = 0;
    for (std::uint64_t step = 0; step < 33; ++step) {
      for (std::uint32_t i = 0; i < 40; ++i) monitor.record(change_at(step, i));
      const auto outcome = monitor.end_step();
      ASSERT_TRUE(outcome.ok());
      EXPECT_FALSE(outcome->alarm.has_value());
      comparisons += outcome->compared ? 1 : 0;
    }
    EXPECT_EQ(comparisons, 4);
  });
}

TEST(DivergenceMonitor, AFlippedEntryOnOneOfEightRanksIsLocatedWithinTheInterval) {
  constexpr std::uint32_t kInterval = 32;
  for (const auto& [victim, flipped_step, flipped_entry] :
       {std::tuple{5, 3U, 17U}, {0, 0U, 0U}, {7, 31U, 39U}, {2, 19U, 6U}}) {
    on_thread_ranks(
        8, [&, victim = victim, flipped_step = flipped_step, flipped_entry = flipped_entry](Communicator& comm) {
          DivergenceMonitor monitor(comm, every(kInterval));
          std::optional<DivergenceAlarm> alarm;
          for (std::uint64_t step = 0; step < kInterval; ++step) {
            for (std::uint32_t i = 0; i < 40; ++i) {
              BlockTableChange change = change_at(step, i);
              if (comm.rank() == victim && step == flipped_step && i == flipped_entry) change.block_id ^= 1;
              monitor.record(change);
            }
            const auto outcome = monitor.end_step();
            ASSERT_TRUE(outcome.ok()) << outcome.error().message;
            if (outcome->alarm) alarm = outcome->alarm;
          }
          ASSERT_TRUE(alarm.has_value()) << "within " << kInterval << " steps";
          const BlockTableChange expected = change_at(flipped_step, flipped_entry);
          EXPECT_EQ(alarm->rank, victim);
          EXPECT_NE(alarm->reference_rank, victim);
          EXPECT_TRUE(alarm->located);
          EXPECT_EQ(alarm->position, flipped_step * 40 + flipped_entry);
          ASSERT_TRUE(alarm->there && alarm->reference);
          EXPECT_EQ(*alarm->reference, expected);
          EXPECT_EQ(alarm->there->sequence, expected.sequence);
          EXPECT_EQ(alarm->there->index, expected.index);
          EXPECT_EQ(alarm->there->block_id, expected.block_id ^ 1);
          // After the alarm both start afresh.
          for (std::uint32_t step = 0; step + 1 < kInterval; ++step) EXPECT_TRUE(monitor.end_step().ok());
          const auto next = monitor.end_step();
          ASSERT_TRUE(next.ok());
          EXPECT_TRUE(next->compared);
          EXPECT_FALSE(next->alarm.has_value());
        });
  }
}

TEST(DivergenceMonitor, AMissingChangeIsADifferenceToo) {
  on_thread_ranks(3, [](Communicator& comm) {
    DivergenceMonitor monitor(comm, every(1));
    monitor.record({1, 0, 10});
    if (comm.rank() != 1) monitor.record({1, 1, 11});
    const auto outcome = monitor.end_step();
    ASSERT_TRUE(outcome.ok());
    ASSERT_TRUE(outcome->alarm.has_value());
    EXPECT_EQ(outcome->alarm->describe(), "rank 1: nothing, rank 0: sequence 1 index 1 block 11");
  });
}

TEST(DivergenceMonitor, BeyondWhatIsKeptOnlyTheRanksAreKnown) {
  on_thread_ranks(3, [](Communicator& comm) {
    DivergenceMonitor monitor(comm, every(1, 100));
    for (std::uint32_t i = 0; i < 1000; ++i) monitor.record({1, i, comm.rank() == 2 && i == 999 ? 5 : 6});
    const auto outcome = monitor.end_step();
    ASSERT_TRUE(outcome.ok());
    ASSERT_TRUE(outcome->alarm.has_value());
    EXPECT_EQ(outcome->alarm->rank, 2);
    EXPECT_FALSE(outcome->alarm->located);
    EXPECT_EQ(outcome->alarm->describe(), "rank 2 differs from rank 0 beyond the first 100 changes");
  });
}

TEST(DivergenceMonitor, AWishForANewAgreementReachesAllRanks) {
  on_thread_ranks(3, [](Communicator& comm) {
    DivergenceMonitor monitor(comm, every(4));
    for (int step = 0; step < 8; ++step) {
      const auto outcome = monitor.end_step(comm.rank() == 2 && step == 1);
      ASSERT_TRUE(outcome.ok());
      EXPECT_EQ(outcome->wants_agreement, step == 3 ? std::vector<int>{2} : std::vector<int>{}) << step;
    }
  });
}

TEST(DivergenceMonitor, ComparesOnceInThirtyTwoStepsAndNoOftener) {
  // What that costs is measured by the benchmark (`ranks_watching`).
  constexpr std::uint32_t kSteps = 320;
  on_thread_ranks(2, [](Communicator& comm) {
    DivergenceMonitor monitor(comm, every(32));
    std::uint32_t compared = 0;
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      for (std::uint32_t i = 0; i < 16; ++i) monitor.record({i, step, std::int64_t{step} * 16 + i});
      const auto outcome = monitor.end_step();
      ASSERT_TRUE(outcome.ok());
      ASSERT_FALSE(outcome->alarm.has_value());
      EXPECT_EQ(outcome->compared, step % 32 == 31);
      compared += outcome->compared ? 1U : 0U;
    }
    EXPECT_EQ(compared, kSteps / 32);
  });
}

}  // namespace
}  // namespace kvpool
