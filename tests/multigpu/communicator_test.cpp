// Every collective over thread ranks: results, sizes, time-outs, aborts.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "kvpool/multigpu/thread_communicator.hpp"
#include "thread_ranks.hpp"

namespace kvpool {
namespace {

using namespace std::chrono_literals;
using testing::on_thread_ranks;
using testing::to_bytes;
using testing::to_text;

constexpr Timeout kTimeout = 20s;

float rounded_to_bf16(float value) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffff'0000U); }

class CommunicatorTest : public ::testing::TestWithParam<int> {};

TEST_P(CommunicatorTest, GathersDifferentLengthsInRankOrder) {
  const int world = GetParam();
  on_thread_ranks(world, [&](Communicator& comm) {
    EXPECT_EQ(comm.world_size(), world);
    const auto mine =
        to_bytes(std::string(static_cast<std::size_t>(comm.rank()) * 3, static_cast<char>('a' + comm.rank() % 26)));
    for (const bool agreed : {false, true}) {
      const auto all = agreed ? comm.agree("test", mine, kTimeout) : comm.all_gather(mine, kTimeout);
      ASSERT_TRUE(all.ok()) << all.error().message;
      ASSERT_EQ(all->size(), static_cast<std::size_t>(world));
      for (int r = 0; r < world; ++r) {
        EXPECT_EQ(to_text((*all)[static_cast<std::size_t>(r)]),
                  std::string(static_cast<std::size_t>(r) * 3, static_cast<char>('a' + r % 26)));
      }
    }
  });
}

TEST_P(CommunicatorTest, BroadcastsFromEveryRootAndGathersToEveryRoot) {
  const int world = GetParam();
  on_thread_ranks(world, [&](Communicator& comm) {
    for (int root = 0; root < world; ++root) {
      Bytes bytes = comm.rank() == root ? Bytes(100'000, static_cast<std::byte>(root)) : to_bytes("other");
      ASSERT_TRUE(comm.broadcast(bytes, root, kTimeout).ok());
      EXPECT_EQ(bytes, Bytes(100'000, static_cast<std::byte>(root)));
      const auto all = comm.gather(to_bytes(std::to_string(comm.rank())), root, kTimeout);
      ASSERT_TRUE(all.ok());
      ASSERT_EQ(all->size(), comm.rank() == root ? static_cast<std::size_t>(world) : 0U);
      for (std::size_t r = 0; r < all->size(); ++r) EXPECT_EQ(to_text((*all)[r]), std::to_string(r));
    }
    EXPECT_TRUE(comm.barrier(kTimeout).ok());
  });
}

TEST_P(CommunicatorTest, TakesTheMinimumInSixtyFourBits) {
  const int world = GetParam();
  on_thread_ranks(world, [&](Communicator& comm) {
    const std::int64_t big = std::int64_t{1} << 33U;
    std::vector<std::int64_t> values{big + comm.rank(), -comm.rank(), std::int64_t{7}};
    ASSERT_TRUE(comm.all_reduce_min(values, kTimeout).ok());
    EXPECT_EQ(values, (std::vector<std::int64_t>{big, -(world - 1), 7}));
  });
}

/// The documented tree, written down once more and differently: pair up powers of two from the left.
float tree_reference(const std::vector<float>& parts) {
  if (parts.size() == 1) return parts[0];
  std::size_t left = 1;
  while (left * 2 < parts.size()) left *= 2;
  const auto middle = parts.begin() + static_cast<std::ptrdiff_t>(left);
  return tree_reference({parts.begin(), middle}) + tree_reference({middle, parts.end()});
}

TEST_P(CommunicatorTest, SumsAlongTheTreeToTheLastBit) {
  const int world = GetParam();
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{70'001}}) {
    std::vector<std::vector<float>> inputs(static_cast<std::size_t>(world));
    std::mt19937 random(static_cast<unsigned>(count) + static_cast<unsigned>(world));
    std::uniform_real_distribution<float> value(-3.0F, 3.0F);
    for (auto& input : inputs) {
      for (std::size_t i = 0; i < count; ++i) input.push_back(value(random) * std::exp2(static_cast<float>(i % 20)));
    }
    on_thread_ranks(world, [&](Communicator& comm) {
      auto sum = inputs[static_cast<std::size_t>(comm.rank())];
      ASSERT_TRUE(comm.all_reduce_sum(sum, SumOrder::fixed_tree, kTimeout).ok());
      std::vector<std::uint16_t> halves;
      for (const float x : inputs[static_cast<std::size_t>(comm.rank())]) {
        halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16U));
      }
      ASSERT_TRUE(comm.all_reduce_sum_bf16(halves, SumOrder::fixed_tree, kTimeout).ok());
      for (std::size_t i = 0; i < count; i += 1 + count / 97) {
        std::vector<float> parts;
        std::vector<float> half_parts;
        for (const auto& input : inputs) {
          parts.push_back(input[i]);
          half_parts.push_back(rounded_to_bf16(input[i]));
        }
        ASSERT_EQ(std::bit_cast<std::uint32_t>(sum[i]), std::bit_cast<std::uint32_t>(tree_reference(parts)));
        const float wide = tree_reference(half_parts);
        const float got = std::bit_cast<float>(static_cast<std::uint32_t>(halves[i]) << 16U);
        ASSERT_LE(std::fabs(got - wide), std::fabs(wide) / 256.0F);  // half a unit in the last place
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, CommunicatorTest, ::testing::Values(1, 2, 3, 4, 8));

TEST(CommunicatorSums, AreTheSameForOneTwoAndFourRanks) {
  std::mt19937 random(5);
  std::normal_distribution<float> value(0.0F, 100.0F);
  std::vector<float> heads(8);
  for (float& head : heads) head = value(random);
  const float expected = tree_reference(heads);
  for (const int world : {1, 2, 4, 8}) {
    on_thread_ranks(world, [&](Communicator& comm) {
      const auto share = static_cast<std::ptrdiff_t>(8 / world);
      const auto from = heads.begin() + share * comm.rank();
      std::vector<float> sum{tree_reference({from, from + share})};
      ASSERT_TRUE(comm.all_reduce_sum(sum, SumOrder::fixed_tree, kTimeout).ok());
      EXPECT_EQ(std::bit_cast<std::uint32_t>(sum[0]), std::bit_cast<std::uint32_t>(expected));
    });
  }
}

TEST(CommunicatorFailures, NameTheSilentRankOnEveryOtherOne) {
  const auto outcomes = on_thread_ranks(4, [](Communicator& comm) {
    ASSERT_TRUE(comm.barrier(2s).ok());
    if (comm.rank() == 2) return;
    const auto start = std::chrono::steady_clock::now();
    std::vector<float> values(20'000, 1.0F);
    const Status status = comm.all_reduce_sum(values, SumOrder::fixed_tree, 400ms);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::deadline_exceeded);
    EXPECT_EQ(status.error().rank, 2) << status.error().message;
    EXPECT_LT(std::chrono::steady_clock::now() - start, 1400ms);
    EXPECT_EQ(comm.barrier(10s).error().message, status.error().message) << "a failed communicator stays failed";
  });
  EXPECT_EQ(outcomes[0], outcomes[1]);
  EXPECT_EQ(outcomes[0], outcomes[3]);
  EXPECT_NE(outcomes[0].find("rank 2 did not answer in all_reduce_sum within 400 ms"), std::string::npos)
      << outcomes[0];
}

TEST(CommunicatorFailures, AnAbortReachesThoseThatWait) {
  const auto outcomes = on_thread_ranks(3, [](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.abort({ErrorCode::out_of_memory, "no more", 1});
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    const Status status = comm.all_gather({}, 20s).status();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::rank_failed);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 5s) << "long before the time-out";
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome, "rank_failed 1 rank 1 gave up: out_of_memory: no more");
}

TEST(CommunicatorFailures, AnotherLengthOrAnotherCallIsThatRanksFault) {
  for (int round = 0; round < 50; ++round) {  // whoever compares first, and be it the one that differs
    const auto lengths = on_thread_ranks(3, [](Communicator& comm) {
      std::vector<std::int64_t> values(comm.rank() == 2 ? 1 : 2, 5);
      EXPECT_FALSE(comm.all_reduce_min(values, 2s).ok());
    });
    for (const auto& outcome : lengths) {
      EXPECT_EQ(outcome, lengths[0]);
      EXPECT_EQ(outcome.substr(0, 12), "bad_input 2 ") << outcome;
    }
  }
  const auto calls = on_thread_ranks(3, [](Communicator& comm) {
    const Status status = comm.rank() == 1 ? comm.barrier(2s) : comm.all_gather({}, 2s).status();
    EXPECT_FALSE(status.ok());
  });
  for (const auto& outcome : calls) {
    EXPECT_EQ(outcome, calls[0]);
    EXPECT_EQ(outcome.substr(0, 12), "bad_input 1 ") << outcome;
  }
}

TEST(CommunicatorFailures, ALateRankIsWaitedFor) {
  on_thread_ranks(3, [](Communicator& comm) {
    if (comm.rank() == 1) std::this_thread::sleep_for(500ms);
    EXPECT_TRUE(comm.agree("late", {}, 1s).ok());
  });
}

TEST(CommunicatorFailures, AWorldNeedsARank) {
  EXPECT_THROW((void)make_thread_communicators(0), std::invalid_argument);
  on_thread_ranks(2, [](Communicator& comm) {
    Bytes bytes;
    EXPECT_EQ(comm.broadcast(bytes, 2, kTimeout).error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(comm.gather(bytes, -1, kTimeout).error().code, ErrorCode::invalid_argument);
    EXPECT_TRUE(comm.barrier(kTimeout).ok());
  });
}

}  // namespace
}  // namespace kvpool
