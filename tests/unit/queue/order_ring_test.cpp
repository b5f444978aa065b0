#include "queue/order_ring.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace kvpool {
namespace {

using Ring = OrderRing<std::atomic>;

std::vector<std::uint32_t> take(Ring& ring, std::size_t count) {
  std::vector<RingEntry> entries(count);
  std::uint32_t killed = 0;
  entries.resize(ring.take(entries, killed));
  std::vector<std::uint32_t> blocks;
  blocks.reserve(entries.size());
  for (const RingEntry& entry : entries) blocks.push_back(entry.block);
  return blocks;
}

TEST(OrderRing, FirstInFirstOutOverManyLaps) {
  Ring ring(4);
  for (std::uint32_t i = 1; i < 100; ++i) {
    ASSERT_EQ(ring.put(ring.take_positions(1), i), PutOutcome::ok);
    ASSERT_EQ(ring.put(ring.take_positions(1), i + 100), PutOutcome::ok);
    ASSERT_EQ(take(ring, 5), (std::vector<std::uint32_t>{i, i + 100}));
  }
  EXPECT_TRUE(take(ring, 1).empty());
}

TEST(OrderRing, FullRingRefusesAndTakesAgainAfterwards) {
  Ring ring(2);
  ASSERT_EQ(ring.put(ring.take_positions(1), 1), PutOutcome::ok);
  ASSERT_EQ(ring.put(ring.take_positions(1), 2), PutOutcome::ok);
  const std::uint64_t third = ring.take_positions(1);
  EXPECT_EQ(ring.put(third, 3), PutOutcome::full);
  EXPECT_EQ(take(ring, 1), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(ring.put(third, 3), PutOutcome::ok);
  EXPECT_EQ(take(ring, 5), (std::vector<std::uint32_t>{2, 3}));
}

TEST(OrderRing, ConsumerKillsAPendingPositionAndTheProducerNotices) {
  Ring ring(4);
  const std::uint64_t slow = ring.take_positions(1);
  ASSERT_EQ(ring.put(ring.take_positions(1), 9), PutOutcome::ok);
  EXPECT_EQ(take(ring, 1), (std::vector<std::uint32_t>{0}));  // the dead position
  EXPECT_EQ(take(ring, 1), (std::vector<std::uint32_t>{9}));
  EXPECT_EQ(ring.put(slow, 5), PutOutcome::killed);
}

TEST(OrderRing, PendingPositionInTheMiddleEndsTheRun) {
  Ring ring(8);
  ASSERT_EQ(ring.put(ring.take_positions(1), 1), PutOutcome::ok);
  const std::uint64_t slow = ring.take_positions(1);
  ASSERT_EQ(ring.put(ring.take_positions(1), 3), PutOutcome::ok);
  EXPECT_EQ(take(ring, 8), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(ring.put(slow, 2), PutOutcome::ok);
  EXPECT_EQ(take(ring, 8), (std::vector<std::uint32_t>{2, 3}));
}

TEST(OrderRing, LateProducerOfAnOldLapIsNotFooledByUnsignedArithmetic) {
  Ring ring(2);
  const std::uint64_t slow = ring.take_positions(1);
  for (std::uint32_t i = 0; i < 6; ++i) {
    static_cast<void>(take(ring, 1));
    ASSERT_EQ(ring.put(ring.take_positions(1), i + 1), PutOutcome::ok);
    static_cast<void>(take(ring, 2));
  }
  EXPECT_EQ(ring.put(slow, 77), PutOutcome::killed);  // neither full nor written over a newer entry
  EXPECT_TRUE(take(ring, 4).empty());
}

TEST(OrderRing, GivenUpPositionReadsAsDead) {
  Ring ring(4);
  const std::uint64_t first = ring.take_positions(2);
  ring.kill(first);
  ASSERT_EQ(ring.put(first + 1, 6), PutOutcome::ok);
  EXPECT_EQ(take(ring, 4), (std::vector<std::uint32_t>{0, 6}));
}

TEST(OrderRing, GivingUpAPositionLeavesTheEntryALapBeforeAlone) {
  Ring ring(2);
  ASSERT_EQ(ring.put(ring.take_positions(1), 1), PutOutcome::ok);
  ASSERT_EQ(ring.put(ring.take_positions(1), 2), PutOutcome::ok);
  ring.kill(ring.take_positions(1));
  std::vector<std::uint32_t> standing;
  ring.for_each([&](const RingEntry& entry) { standing.push_back(entry.block); });
  ASSERT_EQ(standing, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(take(ring, 2), (std::vector<std::uint32_t>{1, 2}));
}

TEST(OrderRing, EveryEntryIsTakenOnce) {
  Ring ring(8);
  constexpr std::uint32_t kPerProducer = 1'000;
  std::array<std::vector<std::uint32_t>, 2> taken;
  std::atomic<std::uint32_t> produced{0};
  std::array<std::thread, 4> threads;
  for (std::uint32_t p = 0; p < 2; ++p) {
    threads[p] = std::thread([&, p] {
      for (std::uint32_t i = 0; i < kPerProducer; ++i) {
        const std::uint32_t value = 1 + p * kPerProducer + i;
        std::uint64_t at = ring.take_positions(1);
        for (PutOutcome outcome = ring.put(at, value); outcome != PutOutcome::ok; outcome = ring.put(at, value)) {
          if (outcome == PutOutcome::killed) {
            at = ring.take_positions(1);
          } else {
            std::this_thread::yield();
          }
        }
      }
      produced.fetch_add(1, std::memory_order_release);
    });
  }
  for (std::size_t c = 0; c < 2; ++c) {
    threads[2 + c] = std::thread([&, c] {
      for (;;) {
        const bool last = produced.load(std::memory_order_acquire) == 2;
        const auto blocks = take(ring, 3);
        for (const std::uint32_t block : blocks) {
          if (block != 0) taken[c].push_back(block);
        }
        if (blocks.empty() && last) return;
        if (blocks.empty()) std::this_thread::yield();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<int> seen(1 + 2 * kPerProducer, 0);
  for (const auto& list : taken) {
    for (const std::uint32_t value : list) ++seen[value];
  }
  for (std::size_t value = 1; value < seen.size(); ++value) ASSERT_EQ(seen[value], 1) << value;
}

}  // namespace
}  // namespace kvpool
