// Calls on many blocks at once, and the counters; both kinds of pool have them.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "foundation/aligned_array.hpp"
#include "kvpool/pool/block_pool.hpp"
#include "kvpool/pool/locked_block_pool.hpp"

namespace kvpool {
namespace {

BlockHash hash_of(std::uint32_t number) {
  std::array<std::uint8_t, 32> digest{};
  for (std::size_t i = 0; i < 4; ++i) digest[8 + i] = static_cast<std::uint8_t>(number >> (8 * i));
  digest[20] = 1;
  return BlockHash::from_digest(digest);
}

std::vector<BlockHash> hashes(std::uint32_t first, std::size_t count) {
  std::vector<BlockHash> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(hash_of(first + static_cast<std::uint32_t>(i)));
  return result;
}

template <class Pool>
class PoolBatch : public ::testing::Test {
 protected:
  static BlockPoolOptions options(std::uint32_t blocks, std::uint32_t shards = 1) {
    BlockPoolOptions result;
    result.num_blocks = blocks;
    result.num_shards = shards;
    return result;
  }
  static std::vector<BlockId> allocate(Pool& pool, std::size_t count) {
    std::vector<BlockId> blocks(count);
    EXPECT_TRUE(pool.get_new_blocks(blocks));
    return blocks;
  }
};
using Pools = ::testing::Types<BlockPool, LockedBlockPool>;
TYPED_TEST_SUITE(PoolBatch, Pools);

TYPED_TEST(PoolBatch, ChainIsPublishedUnitByUnit) {
  TypeParam pool(this->options(60));
  const auto blocks = this->allocate(pool, 50);
  const auto units = hashes(1, 103);  // two units a block, one left over
  EXPECT_EQ(pool.publish_chain(blocks, {units, 2}, GroupId{3}, 32, 8), 50U);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    ASSERT_EQ(pool.primary_key(blocks[i]), (BlockKey{units[(2 * i) + 1], GroupId{3}}));
    ASSERT_EQ(pool.covered_tokens(blocks[i]), 32 + (8 * static_cast<std::int64_t>(i + 1)));
  }
  EXPECT_EQ(pool.publish_chain(blocks, {units, 2}, GroupId{3}, 32, 8), 0U);  // known already
  EXPECT_EQ(pool.stats().published_keys, 50U);
}

TYPED_TEST(PoolBatch, ChainSkipsNullBlocksAndKeepsDuplicatesInOrder) {
  TypeParam pool(this->options(60));
  auto blocks = this->allocate(pool, 20);
  auto chain = hashes(1, 25);
  chain[4] = chain[3];  // the same key twice in one portion
  blocks[7] = kNullBlock;
  EXPECT_EQ(pool.publish_chain(blocks, {chain, 1}, GroupId{0}, 0, 4), 19U);
  EXPECT_FALSE(pool.find({chain[7], GroupId{0}}).has_value());
  EXPECT_EQ(pool.find({chain[3], GroupId{0}})->id, blocks[3]);
  EXPECT_EQ(pool.stats().duplicate_keys, 1U);
  EXPECT_EQ(pool.covered_tokens(blocks[8]), 36);
  EXPECT_TRUE(pool.unpublish(blocks[3]));
  EXPECT_EQ(pool.find({chain[3], GroupId{0}})->id, blocks[4]);
}

TYPED_TEST(PoolBatch, PrefixIsPinnedUpToTheFirstLostBlock) {
  TypeParam pool(this->options(41));
  const auto blocks = this->allocate(pool, 40);
  const auto chain = hashes(1, 40);
  pool.publish_chain(blocks, {chain, 1}, GroupId{0}, 0, 4);
  pool.free_blocks(blocks);
  std::array<BlockHandle, 40> handles;
  ASSERT_EQ(pool.find_prefix({chain, 1}, GroupId{0}, handles), 40U);
  ASSERT_TRUE(pool.unpublish(blocks[30]));
  auto reservation = pool.try_reserve(40);
  ASSERT_TRUE(reservation.has_value());
  EXPECT_EQ(pool.pin_prefix(handles, {chain, 1}, GroupId{0}, *reservation), 30U);
  EXPECT_EQ(reservation->remaining(), 10U);
  EXPECT_EQ(pool.pin_prefix(std::span(handles).first(5), {chain, 1}, GroupId{0}, *reservation), 5U);
  EXPECT_EQ(reservation->remaining(), 10U);  // shared now
  EXPECT_EQ(pool.ref_count(blocks[4]), 2U);
  EXPECT_EQ(pool.ref_count(blocks[30]), 0U);
  reservation->give_back(10);
  EXPECT_EQ(pool.counts().referenced, 30U);
  EXPECT_EQ(pool.stats().pinned_blocks, 35U);
}

TYPED_TEST(PoolBatch, PinEndsWhereTheReservationEnds) {
  TypeParam pool(this->options(9));
  const auto blocks = this->allocate(pool, 8);
  const auto chain = hashes(1, 8);
  pool.publish_chain(blocks, {chain, 1}, GroupId{0}, 0, 4);
  pool.free_blocks(blocks);
  std::array<BlockHandle, 8> handles;
  ASSERT_EQ(pool.find_prefix({chain, 1}, GroupId{0}, handles), 8U);
  auto reservation = pool.try_reserve(3);
  EXPECT_EQ(pool.pin_prefix(handles, {chain, 1}, GroupId{0}, *reservation), 3U);
  EXPECT_EQ(pool.ref_count(blocks[3]), 0U);
}

TYPED_TEST(PoolBatch, ResetAllowsPermanentBlocksOnly) {
  TypeParam pool(this->options(9));
  const auto sinks = this->allocate(pool, 2);
  const auto others = this->allocate(pool, 3);
  const auto chain = hashes(1, 3);
  pool.publish_chain(others, {chain, 1}, GroupId{0}, 0, 4);
  EXPECT_FALSE(pool.reset_prefix_cache(2));
  pool.free_blocks(others);
  EXPECT_FALSE(pool.reset_prefix_cache());
  EXPECT_TRUE(pool.find({chain[0], GroupId{0}}).has_value());
  EXPECT_TRUE(pool.reset_prefix_cache(2));
  EXPECT_FALSE(pool.find({chain[0], GroupId{0}}).has_value());
  EXPECT_EQ(pool.counts().cached, 0U);
  EXPECT_EQ(pool.counts().referenced, 2U);
  EXPECT_EQ(pool.ref_count(sinks[0]), 1U);
}

TYPED_TEST(PoolBatch, ShardsAddUpToTheTotal) {
  TypeParam pool(this->options(400, 4));
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t round = 0; round < 50; ++round) {
        std::vector<BlockId> blocks(40);
        if (!pool.get_new_blocks(blocks)) continue;
        pool.publish_chain(blocks, {hashes((t * 10'000) + (round * 40), 30), 1}, GroupId{0}, 0, 4);
        pool.free_blocks(blocks);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  PoolStats sum;
  for (const PoolStats& shard : pool.shard_stats()) {
    sum.allocated_blocks += shard.allocated_blocks;
    sum.published_keys += shard.published_keys;
    sum.released_references += shard.released_references;
    sum.evicted_blocks += shard.evicted_blocks;
  }
  const PoolStats total = pool.stats();
  EXPECT_EQ(pool.shard_stats().size(), 4U);
  EXPECT_EQ(sum.allocated_blocks, total.allocated_blocks);
  EXPECT_EQ(sum.evicted_blocks, total.evicted_blocks);
  EXPECT_EQ(total.published_keys, total.allocated_blocks / 40 * 30);
  EXPECT_EQ(total.released_references, total.allocated_blocks);
  EXPECT_EQ(total.operations(), sum.allocated_blocks + sum.published_keys + sum.released_references);
  EXPECT_EQ(pool.counts().referenced, 0U);
  EXPECT_TRUE(pool.check_invariants().ok()) << pool.check_invariants().error().message;
}

// --- the lock-free pool alone ----------------------------------------------------------------------------

BlockPoolOptions one_shard(std::uint32_t blocks) {
  BlockPoolOptions options;
  options.num_blocks = blocks;
  options.num_shards = 1;
  return options;
}

TEST(PoolCounters, CountsFollowEveryWayABlockCanGo) {
  BlockPool pool(one_shard(20));
  std::vector<BlockId> blocks(12);
  ASSERT_TRUE(pool.get_new_blocks(blocks));
  const auto chain = hashes(1, 12);
  pool.publish_chain(std::span(blocks).first(10), {chain, 1}, GroupId{0}, 0, 4);
  EXPECT_EQ(pool.counts().cached, 10U);
  pool.free_blocks(std::span(blocks).first(4), 7);  // wait for a fence
  EXPECT_EQ(pool.counts().fenced, 4U);
  EXPECT_EQ(pool.counts().referenced, 8U);
  auto nothing = pool.try_reserve(0);
  ASSERT_TRUE(pool.pin(*pool.find({chain[0], GroupId{0}}), {chain[0], GroupId{0}}, *nothing));
  ASSERT_TRUE(pool.touch(std::span(blocks).subspan(1, 1)));
  EXPECT_EQ(pool.counts().fenced, 2U);
  EXPECT_EQ(pool.counts().referenced, 10U);
  pool.advance_fence(7);
  EXPECT_EQ(pool.counts().fenced, 0U);
  ASSERT_TRUE(pool.touch(std::span(blocks).subspan(2, 1)));  // from the order
  ASSERT_TRUE(pool.touch(std::array{BlockId{15}}));          // from the stack
  EXPECT_EQ(pool.counts().referenced, 12U);
  pool.move_block_hashes(blocks[5], BlockId{15});
  pool.unpublish(blocks[6]);
  EXPECT_EQ(pool.counts().cached, 9U);
  EXPECT_TRUE(pool.evict_blocks(std::span(blocks).first(2)));
  EXPECT_EQ(pool.counts().cached, 7U);
  auto reservation = pool.try_reserve(3);
  EXPECT_EQ(pool.counts().reserved, 3U);
  EXPECT_TRUE(pool.check_invariants().ok()) << pool.check_invariants().error().message;
}

TEST(PoolCounters, WithoutStatsTheCountsComeFromTheBlocks) {
  BlockPoolOptions options = one_shard(20);
  options.enable_stats = false;
  BlockPool pool(options);
  std::vector<BlockId> blocks(5);
  ASSERT_TRUE(pool.get_new_blocks(blocks));
  pool.publish_chain(blocks, {hashes(1, 3), 1}, GroupId{0}, 0, 4);
  EXPECT_EQ(pool.counts().referenced, 5U);
  EXPECT_EQ(pool.counts().cached, 3U);
  EXPECT_EQ(pool.stats().operations(), 0U);
  EXPECT_TRUE(pool.check_invariants().ok());
}

TEST(PoolCounters, CrowdedIndexShowsItsLongestProbe) {
  BlockPoolOptions options = one_shard(60);
  options.index_buckets = 8;
  BlockPool pool(options);
  std::vector<BlockId> blocks(59);
  ASSERT_TRUE(pool.get_new_blocks(blocks));
  EXPECT_EQ(pool.publish_chain(blocks, {hashes(1, 59), 1}, GroupId{0}, 0, 4), 56U);  // eight buckets of seven
  EXPECT_GE(pool.stats().longest_probe, 1U);
  EXPECT_LT(pool.stats().longest_probe, 8U);
  EXPECT_EQ(pool.stats().index_full, 3U);
  EXPECT_TRUE(pool.check_invariants().ok()) << pool.check_invariants().error().message;
}

/// A hot set that moves, cold content that stays, at the ring size that the pool chooses: nothing is dropped.
TEST(PoolCounters, DefaultRingsHoldEveryMixtureOfHotAndColdBlocks) {
  for (const std::uint32_t blocks : {65U, 129U, 1'025U}) {
    BlockPool pool(one_shard(blocks));
    std::vector<BlockId> all(blocks - 1);
    ASSERT_TRUE(pool.get_new_blocks(all));
    const auto chain = hashes(1, all.size());
    ASSERT_EQ(pool.publish_chain(all, {chain, 1}, GroupId{0}, 0, 4), all.size());
    pool.free_blocks(all);
    std::mt19937 random(blocks);
    for (std::uint32_t hot : {1U, 2U, blocks / 16, blocks / 2, blocks - 1}) {
      for (std::uint32_t i = 0; i < 8 * blocks; ++i) {
        const std::array<BlockId, 1> block{all[random() % hot]};
        ASSERT_TRUE(pool.touch(block));
        ASSERT_TRUE(pool.free_blocks(block));
      }
    }
    EXPECT_EQ(pool.stats().ring_full, 0U) << blocks;
    EXPECT_GT(pool.stats().dropped_entries, 0U);
    EXPECT_EQ(pool.counts().cached, all.size());
    EXPECT_TRUE(pool.check_invariants().ok()) << pool.check_invariants().error().message;
  }
}

TEST(AlignedArray, LargeOnesStartOnHugePagesAndAreGivenBack) {
  const std::size_t before = array_bytes_in_use();
  {
    AlignedArray<std::uint64_t> large((3 * kHugePageBytes / 8) + 5, true);
    AlignedArray<std::uint64_t> small(100, true);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&large[0]) % kHugePageBytes, 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&small[0]) % kCacheLineBytes, 0U);
    EXPECT_EQ(std::accumulate(large.begin(), large.end(), std::uint64_t{0}), 0U);
    large[large.size() - 1] = 1;
    EXPECT_EQ(array_bytes_in_use() - before, (3 * kHugePageBytes) + 40 + 800);
  }
  EXPECT_EQ(array_bytes_in_use(), before);
}

}  // namespace
}  // namespace kvpool
