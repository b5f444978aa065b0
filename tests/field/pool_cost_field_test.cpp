// Cost and concurrency: kind 10 of the reports.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "tests/field/pool_field.hpp"

namespace kvpool::testing {
namespace {

// What these cost in time is measured by `kvpool bench --filter growth`; here the pool's own steps are counted.

/// Evicts a block and gives it other content, again and again, in a pool whose blocks all have some. Answers how many
/// steps besides the operations themselves that took: exchanges again, blocks looked for, entries of the order visited.
std::uint64_t steps_of_evictions(std::uint32_t usable, std::uint64_t operations) {
  BlockPoolOptions options;
  options.num_blocks = usable + 1;
  options.num_shards = 1;
  BlockPool pool(options);
  std::uint64_t key = 1;
  std::vector<BlockId> all(usable);
  EXPECT_TRUE(pool.get_new_blocks(all));
  for (const BlockId block : all) pool.publish(block, make_key(key++), 1);
  pool.free_blocks(all);
  const PoolStats before = pool.stats();
  for (std::uint64_t i = 0; i < operations; ++i) {
    std::array<BlockId, 1> block;
    EXPECT_TRUE(pool.get_new_blocks(block));
    pool.publish(block[0], make_key(key++), 1);
    pool.free_blocks(block);
    EXPECT_EQ(pool.num_free_blocks(), usable);
  }
  const PoolStats after = pool.stats();
  EXPECT_EQ(after.evicted_blocks - before.evicted_blocks, operations);  // the cache is full all the time
  EXPECT_LE(after.longest_probe, 8U);                                   // buckets, of tens of thousands
  return after.retries - before.retries + after.rescans - before.rescans + after.dropped_entries -
         before.dropped_entries + after.moved_entries - before.moved_entries;
}

TEST_F(PoolField, F093_StepsDoNotGrowWithTheCache) {
  constexpr std::uint64_t kOperations = 100'000;
  const std::uint64_t small = steps_of_evictions(1'000, kOperations);
  const std::uint64_t large = steps_of_evictions(static_cast<std::uint32_t>(scaled(200'000, 1'000'000)), kOperations);
  EXPECT_LT(large, 3 * std::max(small, kOperations));
}

TEST_F(PoolField, F094_CachingOffPublishesNothingAndTakesNoMoreSteps) {
  BlockPoolOptions options = pool_of(1'000);
  BlockPool with(options);
  options.enable_caching = false;
  BlockPool without(options);
  const auto steps = [](const PoolStats& stats) {
    return stats.retries + stats.rescans + stats.dropped_entries + stats.moved_entries + stats.stolen_blocks;
  };
  for (int i = 0; i < 10'000; ++i) {
    for (BlockPool* pool : {&with, &without}) {
      const std::vector<BlockId> blocks = allocate(*pool, 16);
      if (pool == &without) {
        EXPECT_FALSE(pool->publish(blocks[0], make_key(static_cast<std::uint64_t>(i) + 1), 1));
      }
      pool->free_blocks(blocks);
    }
  }
  EXPECT_LE(steps(without.stats()), steps(with.stats()));
  EXPECT_EQ(without.num_cached_keys(), 0U);
  EXPECT_EQ(without.stats().published_keys, 0U);
  EXPECT_EQ(with.stats().allocated_blocks, without.stats().allocated_blocks);
}

TEST_F(PoolField, F097_MoveAssignedHolderGivesBackWhatItHeld) {
  BlockPool pool(pool_of(1));
  auto held = pool.try_reserve(1);
  ASSERT_TRUE(held.has_value());
  auto refused = pool.try_reserve(1);  // answers, does not wait for itself
  EXPECT_FALSE(refused.has_value());
  Reservation& same = *held;
  *held = std::move(same);
  EXPECT_EQ(held->remaining(), 1U);
  Reservation empty;
  *held = std::move(empty);
  EXPECT_EQ(held->remaining(), 0U);
  EXPECT_EQ(pool.num_free_blocks(), 1U);
  try {
    auto unwound = pool.try_reserve(1);
    throw std::runtime_error("unwind");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(pool.num_free_blocks(), 1U);
  }
}

TEST_F(PoolField, F098_PinnedBlockIsNotEvictedBetweenChoiceAndRemoval) {
  BlockPoolOptions options = pool_of(64);
  options.num_shards = 2;
  BlockPool pool(options);
  WorkloadOptions workload;
  workload.threads = 8;
  workload.requests_per_thread = scaled(400, 125'000);
  workload.most_alive = 1;
  const WorkloadResult result = run_workload(pool, workload);
  EXPECT_EQ(result.wrong_content, 0U);
  EXPECT_GT(result.hits, 0U);
  expect_at_rest(pool);
}

TEST_F(PoolField, F099_TwoLargeRequestsNeverHoldHalfEach) {
  BlockPoolOptions options = pool_of(10);
  options.num_shards = 2;
  BlockPool pool(options);
  std::array<std::uint64_t, 2> served{};
  std::array<std::thread, 2> threads;
  for (std::size_t t = 0; t < 2; ++t) {
    threads[t] = std::thread([&, t] {
      for (std::size_t i = 0; i < scaled(5'000, 500'000); ++i) {
        auto reservation = pool.try_reserve(6);
        if (!reservation) continue;  // a refused attempt holds nothing
        std::array<BlockId, 6> blocks;
        pool.allocate(*reservation, blocks);
        ++served[t];
        pool.free_blocks(blocks);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GT(served[0] + served[1], 0U);
  expect_at_rest(pool);
}

TEST_F(PoolField, F100_CounterAndOrderAgreeAfterEveryStep) {
  BlockPoolOptions options = pool_of(12);
  BlockPool pool(options);
  std::mt19937_64 random(3);
  std::vector<std::vector<BlockId>> held;
  std::uint64_t step = 1;
  for (std::size_t i = 0; i < scaled(10'000, 1'000'000); ++i) {
    const std::size_t need = random() % 5;
    if (random() % 2 == 0) {
      const std::uint32_t announced = pool.num_free_blocks();
      const std::uint64_t fenced = pool.counts().fenced;
      std::vector<BlockId> blocks(need);
      const bool done = pool.get_new_blocks(blocks);
      const std::uint64_t unfenced = fenced - pool.counts().fenced;  // came free on the way
      ASSERT_EQ(done, announced + unfenced >= need);
      ASSERT_EQ(pool.num_free_blocks(), announced + unfenced - (done ? need : 0));
      if (done) {
        publish(pool, blocks, 1 + random() % 20);
        held.push_back(blocks);
      }
    } else if (!held.empty()) {
      if (random() % 3 == 0) {
        pool.free_blocks(held.back(), ++step);  // a delayed release
      } else {
        free_reversed(pool, held.back());
      }
      held.pop_back();
      if (random() % 4 == 0) pool.advance_fence(step);
    }
    ASSERT_EQ(pool.free_order().size(), pool.num_free_blocks());
    const PoolCounts counts = pool.counts();
    ASSERT_EQ(counts.free + counts.referenced + counts.fenced, counts.usable);
  }
  EXPECT_TRUE(pool.check_invariants().ok());
}

}  // namespace
}  // namespace kvpool::testing
