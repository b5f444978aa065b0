#include "queue/shard_order.hpp"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <random>
#include <vector>

#include "queue/fence_queue.hpp"

namespace kvpool {
namespace {

using Protocol = BlockProtocol<std::atomic>;
using Order = ShardOrder<std::atomic>;

class ShardOrderTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kBlocks = 33;

  explicit ShardOrderTest(std::uint32_t slots = 128) : order_(0, slots, TicketCodec(1)) {}

  /// Hands the block out and releases it with content.
  void own(std::uint32_t block) { protocol_.claim_owned(block); }
  void release(std::uint32_t block) {
    {
      Order::Tickets tickets(order_, 1);
      ASSERT_EQ(protocol_.release(
                    block, [] { return ReleaseTarget::order; }, tickets, tickets),
                ReleaseOutcome::ordered);
      tickets.settle(protocol_, block, incidents_, [](std::uint32_t) {});
    }
    order_.compact(protocol_, 1, incidents_, [](std::uint32_t) {});
  }
  void touch(std::uint32_t block) {
    BlockState seen = protocol_.state(block);
    ASSERT_TRUE(protocol_.try_reference(block, seen));
  }
  std::vector<std::uint32_t> live() const {
    std::vector<std::uint32_t> blocks;
    order_.for_each_live(protocol_, [&](std::uint32_t block) { blocks.push_back(block); });
    return blocks;
  }

  Protocol protocol_{kBlocks};
  Order order_;
  OrderIncidents incidents_;
};

TEST_F(ShardOrderTest, ReleaseOrderIsClaimOrder) {
  for (const std::uint32_t block : {5U, 2U, 9U}) {
    own(block);
    release(block);
  }
  EXPECT_EQ(live(), (std::vector<std::uint32_t>{5, 2, 9}));
  std::array<std::uint32_t, 2> out{};
  ASSERT_EQ(order_.claim(protocol_, Order::young_role, out, incidents_, [](std::uint32_t) {}), 2U);
  EXPECT_EQ(out, (std::array<std::uint32_t, 2>{5, 2}));
  EXPECT_EQ(live(), (std::vector<std::uint32_t>{9}));
}

TEST_F(ShardOrderTest, PositionsThatAReleaseDidNotNeedAreGivenUpByIt) {
  own(5);
  own(2);
  {
    Order::Tickets tickets(order_, 6);  // more than come
    ASSERT_EQ(protocol_.release(
                  5, [] { return ReleaseTarget::order; }, tickets, tickets),
              ReleaseOutcome::ordered);
    tickets.settle(protocol_, 5, incidents_, [](std::uint32_t) {});
  }
  release(2);
  std::array<std::uint32_t, 2> out{};
  ASSERT_EQ(order_.claim(protocol_, Order::young_role, out, incidents_, [](std::uint32_t) {}), 2U);
  EXPECT_EQ(out, (std::array<std::uint32_t, 2>{5, 2}));
  EXPECT_EQ(incidents_.dead_slots, 0U) << "nobody had to kill a position that no entry came to";
}

TEST_F(ShardOrderTest, TouchedBlockLosesItsPlaceAndTakesANewOne) {
  for (std::uint32_t block = 1; block < 5; ++block) {
    own(block);
    release(block);
  }
  touch(2);
  EXPECT_EQ(live(), (std::vector<std::uint32_t>{1, 3, 4}));
  release(2);
  EXPECT_EQ(live(), (std::vector<std::uint32_t>{1, 3, 4, 2}));
}

TEST_F(ShardOrderTest, OrderEqualsADequeThroughHundredsOfRotations) {
  std::deque<std::uint32_t> expected;
  for (std::uint32_t block = 1; block < kBlocks; ++block) {
    own(block);
    release(block);
    expected.push_back(block);
  }
  std::mt19937 random(5);
  for (int i = 0; i < 40'000; ++i) {
    // A hot set moves all the time, the cold ones stay and must be carried along.
    const auto block = static_cast<std::uint32_t>(1 + random() % (i % 64 == 0 ? kBlocks - 1 : 6));
    touch(block);
    release(block);
    std::erase(expected, block);
    expected.push_back(block);
    if (i % 16 == 0) {
      ASSERT_EQ(live(), std::vector<std::uint32_t>(expected.begin(), expected.end())) << i;
    }
  }
  EXPECT_EQ(incidents_.ring_full, 0U);
  EXPECT_EQ(incidents_.dead_slots, 0U);
}

/// The work of a release is a few entries, and the more the more blocks it gave back.
TEST_F(ShardOrderTest, CompactionDoesWorkInProportionToWhatWasReleased) {
  constexpr int kDead = 60;
  for (std::uint32_t block = 1; block <= 20; ++block) {
    own(block);
    Order::Tickets tickets(order_, 1);
    ASSERT_EQ(protocol_.release(
                  block, [] { return ReleaseTarget::order; }, tickets, tickets),
              ReleaseOutcome::ordered);
    tickets.settle(protocol_, block, incidents_, [](std::uint32_t) {});
  }
  for (int i = 0; i < kDead; ++i) {  // more than half of the ring is used now: what stands there is to be cleaned
    touch(20);
    Order::Tickets tickets(order_, 1);
    ASSERT_EQ(protocol_.release(
                  20, [] { return ReleaseTarget::order; }, tickets, tickets),
              ReleaseOutcome::ordered);
    tickets.settle(protocol_, 20, incidents_, [](std::uint32_t) {});
  }
  order_.compact(protocol_, 1, incidents_, [](std::uint32_t) {});
  EXPECT_EQ(incidents_.moved, 2U);
  order_.compact(protocol_, 5, incidents_, [](std::uint32_t) {});
  EXPECT_EQ(incidents_.moved, 12U);
  order_.compact(protocol_, 4, incidents_, [](std::uint32_t) {});  // seven that live, and eight that are dead
  EXPECT_EQ(incidents_.moved, 19U);
  EXPECT_EQ(incidents_.dropped, 8U);
  order_.compact(protocol_, 1, incidents_, [](std::uint32_t) {});
  EXPECT_EQ(incidents_.dropped, 24U);
}

class TinyShardOrder : public ShardOrderTest {
 protected:
  TinyShardOrder() : ShardOrderTest(4) {}
};

TEST_F(TinyShardOrder, FullRingSendsTheBlockToTheStack) {
  for (std::uint32_t block = 1; block <= 6; ++block) {
    own(block);
    Order::Tickets tickets(order_, 1);
    ASSERT_EQ(protocol_.release(
                  block, [] { return ReleaseTarget::order; }, tickets, tickets),
              ReleaseOutcome::ordered);
    tickets.settle(protocol_, block, incidents_, [](std::uint32_t) {});
  }
  EXPECT_EQ(incidents_.ring_full, 2U);
  EXPECT_EQ(live(), (std::vector<std::uint32_t>{1, 2, 3, 4}));
  std::array<std::uint32_t, 4> popped{};
  EXPECT_EQ(order_.stack().pop(protocol_, popped), 2U);
}

TEST(TicketCodec, PlacesAndRegistrationsHaveDifferentNumbers) {
  const TicketCodec codec(2);
  std::vector<std::uint32_t> seen;
  for (std::uint64_t position = 0; position < 50; ++position) {
    for (std::uint32_t shard = 0; shard < 2; ++shard) {
      for (std::uint32_t ring = 0; ring < 3; ++ring) seen.push_back(codec.order(shard, ring, position));
    }
    seen.push_back(codec.fence(position));
    seen.push_back(codec.registration(static_cast<std::uint32_t>(position)));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST(FenceQueue, AWalkFindsEveryBlockThatFoundNoSlot) {
  constexpr std::uint32_t kLast = 8;
  Protocol protocol(kLast + 1);
  FenceQueue<std::atomic> queue(kLast + 1, 2, TicketCodec(1));
  for (std::uint32_t block = 1; block <= kLast; ++block) {
    protocol.claim_owned(block);
    queue.require(block, 5);
    FenceQueue<std::atomic>::Tickets tickets;
    tickets.attach(&queue);
    ASSERT_EQ(protocol.release(
                  block, [] { return ReleaseTarget::fence; }, tickets, tickets),
              ReleaseOutcome::fenced);
    tickets.settle(protocol, block);
    EXPECT_EQ(queue.needs_walk(), block > 2) << block;
  }
  queue.advance(5);
  std::vector<std::uint32_t> passed;
  queue.walk(protocol, [&](std::uint32_t block, std::uint32_t) { passed.push_back(block); });
  EXPECT_EQ(passed, (std::vector<std::uint32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(FenceQueue, PassesInOrderAndFindsStragglersByWalking) {
  Protocol protocol(9);
  FenceQueue<std::atomic> queue(9, 2, TicketCodec(1));
  const auto wait = [&](std::uint32_t block, std::uint64_t fence) {
    protocol.claim_owned(block);
    queue.require(block, fence);
    ASSERT_TRUE(queue.must_wait(block));
    FenceQueue<std::atomic>::Tickets tickets;
    tickets.attach(&queue);
    const auto to_fence = [] { return ReleaseTarget::fence; };
    ASSERT_EQ(protocol.release(block, to_fence, tickets, tickets), ReleaseOutcome::fenced);
    tickets.settle(protocol, block);
  };
  wait(1, 5);
  wait(2, 3);  // behind a later fence
  wait(3, 5);  // the ring of two is full
  std::vector<std::uint32_t> passed;
  const auto unfence = [&](std::uint32_t block, std::uint32_t ticket) {
    BlockState before;
    ASSERT_TRUE(protocol.blank(block, ticket, before));
    passed.push_back(block);
  };
  queue.advance(3);
  EXPECT_EQ(queue.drain(protocol, 9, unfence), 0U);
  ASSERT_TRUE(queue.needs_walk());
  queue.walk(protocol, unfence);
  EXPECT_EQ(passed, (std::vector<std::uint32_t>{2}));
  queue.advance(1);  // fences never go back
  queue.advance(5);
  EXPECT_EQ(queue.drain(protocol, 9, unfence), 1U);
  queue.walk(protocol, unfence);
  EXPECT_EQ(passed, (std::vector<std::uint32_t>{2, 1, 3}));
  EXPECT_FALSE(queue.needs_walk());
}

}  // namespace
}  // namespace kvpool
