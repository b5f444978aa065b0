// The benchmark's own parts: percentiles are right, and every rival does the same work as kvpool.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <mutex>
#include <random>
#include <vector>

#include "kvpool/pool/locked_block_pool.hpp"
#include "tools/bench/prefix_workload.hpp"
#include "tools/bench/rivals/card_pool.hpp"
#include "tools/bench/rivals/kvpool_adapter.hpp"
#include "tools/bench/rivals/lean_pool.hpp"
#include "tools/bench/rivals/spin_lock.hpp"
#include "tools/bench/rivals/std_pool.hpp"
#include "tools/bench/statistics.hpp"

namespace kvpool::tools {
namespace {

using std::chrono::nanoseconds;

TEST(BenchStatistics, Median) {
  EXPECT_EQ(median(std::vector<double>{}), 0);
  EXPECT_EQ(median(std::vector<double>{3}), 3);
  EXPECT_EQ(median(std::vector<double>{9, 1, 3}), 3);
  EXPECT_EQ(median(std::vector<double>{9, 1, 3, 5}), 4);
}

TEST(BenchStatistics, MedianOfPercentilesGoesColumnByColumn) {
  const std::vector<Percentiles> runs{{1, 20, 3, 40, 5}, {2, 10, 9, 50, 4}, {3, 30, 6, 60, 6}};
  const Percentiles middle = median(runs);
  EXPECT_EQ(middle.p50, 2);
  EXPECT_EQ(middle.p99, 20);
  EXPECT_EQ(middle.p999, 6);
  EXPECT_EQ(middle.p9999, 50);
  EXPECT_EQ(middle.max, 5);
}

TEST(LatencyHistogram, EmptyAnswersZero) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.quantile(0.5), 0);
  EXPECT_EQ(histogram.percentiles().max, 0);
}

TEST(LatencyHistogram, QuantilesAreWithinTheBucketWidth) {
  LatencyHistogram histogram;
  for (int i = 1; i <= 1'000'000; ++i) {
    histogram.record(nanoseconds(i));
  }
  for (const double share : {0.01, 0.5, 0.9, 0.99, 0.999, 0.9999}) {
    const double exact = share * 1e6;
    EXPECT_GE(histogram.quantile(share), exact - 1);
    EXPECT_LE(histogram.quantile(share), exact * (1 + 1.0 / 64) + 1);
  }
  EXPECT_EQ(histogram.quantile(1), 1e6);
  EXPECT_EQ(histogram.percentiles().max, 1e3);
}

TEST(LatencyHistogram, SmallDurationsAreExactAndHugeOnesFit) {
  LatencyHistogram histogram;
  histogram.record(nanoseconds(0));
  histogram.record(nanoseconds(7));
  histogram.record(nanoseconds(127));
  EXPECT_EQ(histogram.quantile(0.3), 0);
  EXPECT_EQ(histogram.quantile(0.5), 7);
  EXPECT_EQ(histogram.quantile(1), 127);
  histogram.record(nanoseconds::max());
  EXPECT_EQ(histogram.quantile(1), static_cast<double>(nanoseconds::max().count()));
}

TEST(LatencyHistogram, MergingCountsBoth) {
  LatencyHistogram first;
  LatencyHistogram second;
  first.record(nanoseconds(10));
  second.record(nanoseconds(20));
  second.record(nanoseconds(30));
  first.merge(second);
  EXPECT_EQ(first.count(), 3U);
  EXPECT_EQ(first.quantile(0.5), 20);
  EXPECT_EQ(first.quantile(1), 30);
}

TEST(PrefixTable, FamiliesShareTheirFirstBlocksOnly) {
  const PrefixTable table;
  for (std::size_t i = 0; i < kPrefixBlocks; ++i) {
    EXPECT_EQ(table.chain(0)[i] == table.chain(15)[i], i < 8) << i;
    EXPECT_NE(table.chain(0)[i], table.chain(16)[i]) << i;
  }
}

/// Everything a random scheduler sees: which blocks it got, how long its hits were.
template <class Pool>
std::vector<std::uint32_t> transcript(Pool& pool) {
  struct Live {
    std::vector<BlockId> blocks;
  };
  std::mt19937_64 random(3);
  std::vector<Live> live;
  std::vector<std::uint32_t> seen;
  const PrefixTable table;
  std::uint64_t unique = std::uint64_t{1} << 50U;
  for (int step = 0; step < 4'000; ++step) {
    if (live.size() > 6 || (!live.empty() && random() % 3 == 0)) {
      const std::size_t victim = random() % live.size();
      std::vector<BlockId> reversed(live[victim].blocks.rbegin(), live[victim].blocks.rend());
      pool.release(reversed);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
    } else {
      const auto chain = table.chain(random() % 24).first(12);
      std::array<BlockId, 12> pinned{};
      const std::size_t hits = pool.match_and_pin(chain, pinned);
      std::vector<BlockId> fresh(12 - hits + random() % 6);
      const bool allocated = pool.allocate(fresh);
      seen.push_back(static_cast<std::uint32_t>(hits));
      seen.push_back(allocated ? 1 : 0);
      if (!allocated) {
        fresh.clear();
      } else if (!fresh.empty()) {
        std::vector<BlockHash> hashes(chain.begin() + static_cast<std::ptrdiff_t>(hits), chain.end());
        while (hashes.size() + 1 < fresh.size()) {
          hashes.push_back(numbered_hash(unique++));
        }
        const std::size_t count = std::min(hashes.size(), fresh.size());
        pool.publish(std::span(fresh).first(count), std::span(hashes).first(count));
      }
      Live request{{pinned.begin(), pinned.begin() + static_cast<std::ptrdiff_t>(hits)}};
      request.blocks.insert(request.blocks.end(), fresh.begin(), fresh.end());
      for (const BlockId block : request.blocks) {
        seen.push_back(block.value());
      }
      live.push_back(std::move(request));
    }
    seen.push_back(pool.num_free());
  }
  return seen;
}

TEST(Rivals, OneThreadSeesTheSameBlocksFromAllPools) {
  constexpr std::uint32_t kBlocks = 100;
  KvpoolAdapter kvpool(kBlocks, false, 1);
  const std::vector<std::uint32_t> expected = transcript(kvpool);
  LeanPool<std::mutex> lean(kBlocks);
  EXPECT_EQ(transcript(lean), expected);
  LeanPool<SpinLock> spin(kBlocks);
  EXPECT_EQ(transcript(spin), expected);
  StdPool standard(kBlocks);
  EXPECT_EQ(transcript(standard), expected);
  PoolAdapter<LockedBlockPool> locked(kBlocks, false, 1);
  EXPECT_EQ(transcript(locked), expected);
  EXPECT_TRUE(kvpool.pool().check_invariants().ok());
}

// Its shards give another order, but nothing may be lost or handed out twice.
TEST(Rivals, TheShardedPoolKeepsItsBlocks) {
  constexpr std::uint32_t kBlocks = 200;
  CardPool pool(kBlocks);
  const PrefixTable table;
  std::vector<BlockId> all(kBlocks - 1);
  ASSERT_TRUE(pool.allocate(all));
  EXPECT_EQ(pool.num_free(), 0U);
  std::vector<bool> seen(kBlocks);
  for (const BlockId block : all) {
    ASSERT_GT(block.value(), 0U);
    ASSERT_LT(block.value(), kBlocks);
    EXPECT_FALSE(seen[block.value()]);
    seen[block.value()] = true;
  }
  const auto chain = table.chain(0);
  pool.publish(std::span(all).first(kPrefixBlocks), chain);
  std::array<BlockId, 1> more{};
  EXPECT_FALSE(pool.allocate(more));
  pool.release(all);
  EXPECT_EQ(pool.num_free(), kBlocks - 1);

  std::array<BlockId, kPrefixBlocks> pinned{};
  ASSERT_EQ(pool.match_and_pin(chain, pinned), kPrefixBlocks);
  EXPECT_TRUE(std::equal(pinned.begin(), pinned.end(), all.begin()));
  EXPECT_EQ(pool.num_free(), kBlocks - 1 - kPrefixBlocks);
  pool.release(pinned);

  ASSERT_TRUE(pool.allocate(all));  // everything is recycled
  EXPECT_EQ(pool.match_and_pin(chain, pinned), 0U);
  pool.release(all);
  EXPECT_EQ(pool.num_free(), kBlocks - 1);
}

}  // namespace
}  // namespace kvpool::tools
