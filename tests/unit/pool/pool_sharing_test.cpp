// What is told about sharing, and where a thread looks for blocks that another shard has.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "pool/basic_block_pool.hpp"

namespace kvpool {
namespace {

struct Declared {
  static inline std::uint32_t shard = 0;
  static std::uint32_t hint() noexcept { return shard; }
};
using Pool = BasicBlockPool<std::atomic, Declared>;

BlockPoolOptions two_shards(std::uint32_t blocks) {
  BlockPoolOptions options;
  options.num_blocks = blocks;
  options.num_shards = 2;
  return options;
}

BlockKey key_of(std::uint64_t number) {
  BlockKey key;
  key.hash.size = BlockHash::kMaxBytes;
  std::memcpy(key.hash.bytes.data(), &number, sizeof number);
  return key;
}

class PoolSharing : public ::testing::Test {
 protected:
  PoolSharing() { Declared::shard = 0; }
};

TEST_F(PoolSharing, ChangesWithEachFurtherReferenceAndEachThatOthersOutlive) {
  Pool pool(two_shards(9));
  std::array<BlockId, 2> blocks;
  ASSERT_TRUE(pool.get_new_blocks(blocks));
  ASSERT_TRUE(pool.publish(blocks[0], key_of(1), 4));
  std::uint64_t last = *pool.sharing_changes();
  const auto changed = [&] { return std::exchange(last, *pool.sharing_changes()) != last; };
  for (const std::uint32_t shard : {0U, 1U}) {
    Declared::shard = shard;
    ASSERT_TRUE(pool.touch(std::span(blocks).last(1)));
    EXPECT_TRUE(changed()) << "touched on shard " << shard;
    std::uint32_t units = 0;
    ASSERT_TRUE(pool.pin(pool.handle(blocks[0]), key_of(1), units));
    EXPECT_TRUE(changed()) << "pinned on shard " << shard;
    EXPECT_TRUE(pool.free_blocks(blocks));
    EXPECT_TRUE(changed()) << "released on shard " << shard;
    EXPECT_EQ(pool.ref_count(blocks[0]), 1U);
    EXPECT_FALSE(changed());
  }
  std::array<BlockId, 1> another;
  ASSERT_TRUE(pool.get_new_blocks(another));
  EXPECT_TRUE(pool.free_blocks(another));
  EXPECT_TRUE(pool.free_blocks(blocks));
  EXPECT_FALSE(changed()) << "nobody shares a block";
}

TEST_F(PoolSharing, IsUnknownWithoutStats) {
  BlockPoolOptions options = two_shards(4);
  options.enable_stats = false;
  EXPECT_FALSE(Pool(options).sharing_changes().has_value());
}

TEST_F(PoolSharing, BlankBlocksOfAnotherShardComeBeforeOwnContent) {
  Pool pool(two_shards(257));
  std::array<BlockId, 128> own;
  ASSERT_TRUE(pool.get_new_blocks(own));
  EXPECT_EQ(pool.stats().stolen_blocks, 0U);
  for (std::uint32_t i = 0; i < own.size(); ++i) ASSERT_TRUE(pool.publish(own[i], key_of(i), 4));
  EXPECT_TRUE(pool.free_blocks(own));
  std::array<BlockId, 100> more;
  ASSERT_TRUE(pool.get_new_blocks(more));
  EXPECT_EQ(pool.stats().evicted_blocks, 0U);
  EXPECT_EQ(pool.stats().stolen_blocks, more.size());
}

TEST_F(PoolSharing, ABlankBlockIsTouchedOnWhateverShardItStands) {
  Pool pool(two_shards(9));
  EXPECT_TRUE(pool.touch(std::array{BlockId{8}, BlockId{1}}));
  EXPECT_EQ(pool.ref_count(BlockId{8}), 1U);
  EXPECT_EQ(pool.num_free_blocks(), 6U);
  EXPECT_TRUE(pool.check_invariants().ok()) << pool.check_invariants().error().message;
}

TEST_F(PoolSharing, ABlankBlockThatATouchNamesTwiceTakesOneUnit) {
  Pool pool(two_shards(41));
  std::vector<BlockId> list;
  for (std::uint32_t block = 1; block <= 40; ++block) list.push_back(BlockId{block});
  list.push_back(BlockId{2});   // far from its first place
  list.push_back(BlockId{40});  // near to it
  std::array<BlockId, 1> taken;
  ASSERT_TRUE(pool.get_new_blocks(taken));
  ASSERT_EQ(std::erase(list, taken[0]), 1U);
  EXPECT_TRUE(pool.touch(list));
  EXPECT_EQ(pool.num_free_blocks(), 0U);
  EXPECT_EQ(pool.ref_count(BlockId{40}), 2U);
  EXPECT_TRUE(pool.free_blocks(list));
  EXPECT_TRUE(pool.free_blocks(taken));
  EXPECT_TRUE(pool.check_invariants().ok()) << pool.check_invariants().error().message;
}

TEST_F(PoolSharing, ARefusedTouchLeavesTheOrderAsItWas) {
  Pool pool(two_shards(41));
  ASSERT_TRUE(pool.try_reserve(1));  // somebody else's
  std::vector<BlockId> list;
  for (std::uint32_t block = 1; block <= 40; ++block) list.push_back(BlockId{block});
  const std::vector<BlockId> order = pool.free_order();
  EXPECT_FALSE(pool.touch(list));
  EXPECT_EQ(pool.free_order(), order);
  EXPECT_EQ(pool.num_free_blocks(), 39U);
  pool.give_back(1);
}

TEST_F(PoolSharing, TheLongestProbeIsThatOfOneShard) {
  BlockPoolOptions options = two_shards(57);
  options.index_buckets = 8;  // full with all blocks
  Pool pool(options);
  std::array<BlockId, 56> blocks;
  ASSERT_TRUE(pool.get_new_blocks(blocks));
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    Declared::shard = i % 2;
    ASSERT_TRUE(pool.publish(blocks[i], key_of(i), 4));
  }
  const std::vector<PoolStats> shards = pool.shard_stats();
  ASSERT_GT(std::min(shards[0].longest_probe, shards[1].longest_probe), 0U);
  EXPECT_EQ(pool.stats().longest_probe, std::max(shards[0].longest_probe, shards[1].longest_probe));
}

}  // namespace
}  // namespace kvpool
