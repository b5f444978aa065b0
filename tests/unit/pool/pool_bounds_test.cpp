// The last number that is allowed and the first that is not; both kinds of pool where both promise it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <vector>

#include "foundation/array_memory.hpp"
#include "kvpool/foundation/contract.hpp"
#include "kvpool/pool/block_pool.hpp"
#include "kvpool/pool/locked_block_pool.hpp"
#include "pool/pool_layout.hpp"

namespace kvpool {
namespace {

std::vector<ContractBreach> breaches;

BlockKey key_of(std::uint8_t number, std::uint32_t group = 0) {
  BlockKey key;
  key.hash.size = 16;
  key.hash.bytes[7] = number;
  key.group = GroupId{group};
  return key;
}

template <class Pool>
class PoolBounds : public ::testing::Test {
 protected:
  PoolBounds() {
    breaches.clear();
    set_contract_handler([](const ContractViolation& violation) { breaches.push_back(violation.breach); });
  }
  ~PoolBounds() override { set_contract_handler(nullptr); }
  static BlockPoolOptions options(std::uint32_t blocks) {
    BlockPoolOptions result;
    result.num_blocks = blocks;
    result.num_shards = 1;
    result.enable_events = true;
    return result;
  }
  template <std::size_t count>
  static std::array<BlockId, count> allocate(Pool& pool) {
    std::array<BlockId, count> blocks;
    EXPECT_TRUE(pool.get_new_blocks(blocks));
    return blocks;
  }
};
using Pools = ::testing::Types<BlockPool, LockedBlockPool>;
TYPED_TEST_SUITE(PoolBounds, Pools);

TYPED_TEST(PoolBounds, TheFirstNumberBehindThePoolIsUnknown) {
  TypeParam pool(this->options(4));
  const std::array behind{BlockId{4}};
  EXPECT_FALSE(pool.free_blocks(behind));
  EXPECT_FALSE(pool.free_blocks(behind, 3));
  EXPECT_FALSE(pool.touch(behind));
  EXPECT_FALSE(pool.evict_blocks(behind));
  EXPECT_FALSE(pool.publish(behind[0], key_of(1), 4));
  EXPECT_FALSE(pool.unpublish(behind[0]));
  EXPECT_FALSE(pool.primary_key(behind[0]).has_value());
  EXPECT_EQ(breaches, std::vector<ContractBreach>(7, ContractBreach::unknown_block));
}

/// Of the blocks only the number is looked at, since no pool has so many: nobody writes where none are.
TYPED_TEST(PoolBounds, MoreBlocksThanANumberHoldsAreRefused) {
  TypeParam pool(this->options(4));
  constexpr std::size_t kMany = (std::size_t{1} << 32U) + 1;
  void* const nothing =
      mmap(nullptr, kMany * sizeof(BlockId), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(nothing, MAP_FAILED);
  EXPECT_FALSE(pool.get_new_blocks({static_cast<BlockId*>(nothing), kMany}));
  munmap(nothing, kMany * sizeof(BlockId));
  EXPECT_EQ(pool.num_free_blocks(), 3U);
  EXPECT_EQ(pool.stats().refused_allocations, 1U);
}

TYPED_TEST(PoolBounds, RefusalsAreCountedAndAPinWithoutAUnitIsNotLost) {
  TypeParam pool(this->options(3));
  const auto blocks = this->template allocate<2>(pool);
  std::array<BlockId, 1> one;
  EXPECT_FALSE(pool.get_new_blocks(one));
  EXPECT_FALSE(pool.try_reserve(1).has_value());
  EXPECT_EQ(pool.stats().refused_allocations, 2U);
  ASSERT_TRUE(pool.publish(blocks[0], key_of(1), 4));
  EXPECT_TRUE(pool.free_blocks(blocks));
  auto none = pool.try_reserve(0);
  EXPECT_FALSE(pool.pin(pool.handle(blocks[0]), key_of(1), *none));
  EXPECT_EQ(pool.stats().lost_pins, 0U);
  EXPECT_EQ(pool.stats().refused_allocations, 2U);
}

TYPED_TEST(PoolBounds, FencesNeverGoBack) {
  TypeParam pool(this->options(3));
  const auto blocks = this->template allocate<2>(pool);
  pool.advance_fence(5);
  pool.advance_fence(2);
  EXPECT_TRUE(pool.free_blocks(blocks, 5));
  EXPECT_EQ(pool.counts().fenced, 0U);
  EXPECT_EQ(pool.num_free_blocks(), 2U);
}

TYPED_TEST(PoolBounds, AnUnknownBlockDoesNotEndAnEvictionOfMany) {
  TypeParam pool(this->options(4));
  const auto blocks = this->template allocate<3>(pool);
  for (std::uint8_t i = 0; i < 3; ++i) ASSERT_TRUE(pool.publish(blocks[i], key_of(i), 4));
  EXPECT_FALSE(pool.evict_blocks(std::array{blocks[0], BlockId{9}, blocks[2]}));
  EXPECT_EQ(pool.counts().cached, 1U);
  EXPECT_EQ(pool.take_events().size(), 2U);
  EXPECT_TRUE(pool.check_invariants().ok()) << pool.check_invariants().error().message;
}

TYPED_TEST(PoolBounds, AChainLeavesOutWhatThePoolHasAlready) {
  BlockPoolOptions skip = this->options(6);
  skip.duplicates = DuplicatePolicy::skip;
  TypeParam pool(skip);
  const auto blocks = this->template allocate<4>(pool);
  const std::array hashes{key_of(1).hash, key_of(2).hash, key_of(1).hash};
  ASSERT_TRUE(pool.publish(blocks[3], key_of(2), 4));
  EXPECT_EQ(pool.publish_chain(std::span(blocks).first(3), {hashes, 1}, GroupId{0}, 0, 4), 1U);
  EXPECT_TRUE(pool.is_block_writable(blocks[1]));
  EXPECT_TRUE(pool.is_block_writable(blocks[2]));
  EXPECT_EQ(pool.find(key_of(2))->id, blocks[3]);
}

// --- the lock-free pool alone ----------------------------------------------------------------------------

using LockFreeBounds = PoolBounds<BlockPool>;

TEST_F(LockFreeBounds, GroupsBeyondTheWidthOfAKeyAreNotMistakenForOthers) {
  BlockPool pool(options(4));
  const auto blocks = allocate<3>(pool);
  constexpr std::uint32_t kHighest = (1U << 26U) - 1;
  EXPECT_TRUE(pool.publish(blocks[0], key_of(1, kHighest), 4));
  EXPECT_EQ(pool.primary_key(blocks[0]), key_of(1, kHighest));
  EXPECT_FALSE(pool.publish(blocks[1], key_of(1, kHighest + 1), 4));
  const std::array hashes{key_of(2).hash};
  EXPECT_EQ(pool.publish_chain(std::span(blocks).last(1), {hashes, 1}, GroupId{kHighest + 1}, 0, 4), 0U);
  EXPECT_EQ(pool.num_cached_keys(), 1U);
}

TEST_F(LockFreeBounds, KeysStayWhereTheyAreWhenTheIndexHasNoRoomToMoveThem) {
  BlockPoolOptions small = options(10);
  small.index_buckets = 1;
  BlockPool pool(small);
  const auto blocks = allocate<8>(pool);
  for (std::uint8_t i = 0; i < 7; ++i) ASSERT_TRUE(pool.publish(blocks[i], key_of(i), 4));
  pool.move_block_hashes(blocks[0], blocks[7]);
  EXPECT_EQ(pool.find(key_of(0))->id, blocks[0]);
  EXPECT_EQ(pool.counts().cached, 7U);
  EXPECT_TRUE(pool.unpublish(blocks[1]));
  pool.move_block_hashes(blocks[0], blocks[7]);
  EXPECT_EQ(pool.find(key_of(0))->id, blocks[7]);
  EXPECT_EQ(pool.counts().cached, 6U);
  EXPECT_TRUE(pool.check_invariants().ok()) << pool.check_invariants().error().message;
}

TEST_F(LockFreeBounds, RecordsOfFurtherKeysAreUsedAgain) {
  BlockPoolOptions small = options(10);
  small.index_buckets = 1;
  small.enable_events = false;
  BlockPool pool(small);
  const auto blocks = allocate<6>(pool);
  for (std::uint8_t i = 0; i < 6; ++i) ASSERT_TRUE(pool.publish(blocks[i], key_of(i), 4));
  ASSERT_TRUE(pool.publish(blocks[0], key_of(10), 4));  // the last slot, and the first record
  const std::size_t bytes = array_bytes_in_use();
  for (int i = 0; i < 1'000; ++i) EXPECT_FALSE(pool.publish(blocks[1], key_of(11), 4));
  EXPECT_EQ(pool.stats().index_full, 1'000U);
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_TRUE(pool.unpublish(blocks[0]));
    ASSERT_TRUE(pool.publish(blocks[0], key_of(0), 4));
    ASSERT_TRUE(pool.publish(blocks[0], key_of(10), 4));
  }
  EXPECT_EQ(array_bytes_in_use(), bytes);
}

TEST(PoolLayout, FollowsFromTheOptions) {
  const auto layout = [](std::uint32_t blocks, std::uint32_t shards, std::uint32_t slots = 0) {
    BlockPoolOptions options;
    options.num_blocks = blocks;
    options.num_shards = shards;
    options.ring_slots = slots;
    return PoolLayout::of(options);
  };
  EXPECT_EQ(layout(1'000, 1).ring_slots, 2'048U);
  EXPECT_EQ(layout(1'000, 4).ring_slots, 2'048U);
  EXPECT_EQ(layout(1'000, 5).ring_slots, 1'024U);
  EXPECT_EQ(layout(1, 8).ring_slots, 16U);
  EXPECT_EQ(layout(1'000, 1, 2).ring_slots, 2U);
  EXPECT_THROW(layout(1'000, 1, 1), std::invalid_argument);
  EXPECT_EQ(layout(1'000, 256).shards, 256U);
  EXPECT_THROW(layout(1'000, 257), std::invalid_argument);
  EXPECT_EQ(layout(1U << 29U, 1).ring_slots, 1U << 30U);
  EXPECT_EQ(layout(1'000, 1).index_buckets, 500U);
  EXPECT_EQ(layout(1, 1).index_buckets, 4U);
}

}  // namespace
}  // namespace kvpool
