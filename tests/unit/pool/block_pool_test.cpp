// The rules of the pool one by one, on the smallest pool that shows them.
#include "kvpool/pool/block_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <random>

namespace kvpool {
namespace {

BlockKey key_of(std::uint8_t number, std::uint32_t group = 0) {
  BlockKey key;
  std::array<std::uint8_t, 32> digest{};
  digest[7] = number;
  key.hash = BlockHash::from_digest(digest);
  key.group = GroupId{group};
  return key;
}

std::vector<BlockId> ids(std::initializer_list<std::uint32_t> numbers) {
  std::vector<BlockId> result;
  for (const std::uint32_t number : numbers) result.emplace_back(number);
  return result;
}

class BlockPoolTest : public ::testing::Test {
 protected:
  static BlockPoolOptions options(std::uint32_t blocks) {
    BlockPoolOptions result;
    result.num_blocks = blocks;
    result.num_shards = 1;
    result.enable_events = true;
    return result;
  }
  static std::vector<BlockId> allocate(BlockPool& pool, std::size_t count) {
    std::vector<BlockId> blocks(count);
    EXPECT_TRUE(pool.get_new_blocks(blocks));
    return blocks;
  }
  /// Allocates, publishes keys first, first+1, ... and frees in reverse.
  static std::vector<BlockId> cache(BlockPool& pool, std::size_t count, std::uint8_t first) {
    std::vector<BlockId> blocks = allocate(pool, count);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(
          pool.publish(blocks[i], key_of(static_cast<std::uint8_t>(first + i)), static_cast<std::int64_t>(i + 1)));
    }
    pool.free_blocks(std::vector<BlockId>(blocks.rbegin(), blocks.rend()));
    return blocks;
  }
};

TEST_F(BlockPoolTest, FreshPoolHandsOutAscendingIds) {
  BlockPool pool(options(6));
  EXPECT_EQ(pool.free_order(), ids({1, 2, 3, 4, 5}));
  EXPECT_EQ(pool.usage(), 0.0);
  EXPECT_EQ(allocate(pool, 3), ids({1, 2, 3}));
  EXPECT_EQ(pool.usage(), 1.0 - 2.0 / 5.0);
}

TEST_F(BlockPoolTest, SplitOrderPutsBlankBlocksInFrontAndCachedOnesBehind) {
  BlockPool pool(options(11));
  const auto first = allocate(pool, 4);
  for (std::uint8_t i = 0; i < 3; ++i) ASSERT_TRUE(pool.publish(first[i], key_of(i), 16 * (i + 1)));
  ASSERT_TRUE(pool.touch(std::span(first).first(3)));
  const auto second = allocate(pool, 1);
  EXPECT_TRUE(pool.free_blocks(ids({4, 3, 2, 1})));
  EXPECT_TRUE(pool.free_blocks(ids({5, 3, 2, 1})));
  EXPECT_EQ(pool.free_order(), ids({5, 4, 6, 7, 8, 9, 10, 3, 2, 1}));
}

TEST_F(BlockPoolTest, AppendOrderPutsEverythingBehind) {
  BlockPoolOptions append = options(11);
  append.free_order = FreeOrder::append;
  BlockPool pool(append);
  const auto first = allocate(pool, 4);
  ASSERT_TRUE(pool.touch(std::span(first).first(3)));
  static_cast<void>(allocate(pool, 1));
  pool.free_blocks(ids({4, 3, 2, 1}));
  pool.free_blocks(ids({5, 3, 2, 1}));
  EXPECT_EQ(pool.free_order(), ids({6, 7, 8, 9, 10, 4, 5, 3, 2, 1}));
}

TEST_F(BlockPoolTest, CachingOffIsAStackOfRequests) {
  BlockPoolOptions plain = options(7);
  plain.enable_caching = false;
  BlockPool pool(plain);
  const auto first = allocate(pool, 2);
  const auto second = allocate(pool, 2);
  EXPECT_FALSE(pool.publish(first[0], key_of(1), 1));
  pool.free_blocks(ids({2, 1}));
  pool.free_blocks(ids({4, 3}));
  EXPECT_EQ(pool.free_order(), ids({4, 3, 2, 1, 5, 6}));
}

TEST_F(BlockPoolTest, EvictedBlockLosesItsKeysAndAnnouncesThem) {
  BlockPool pool(options(4));
  const auto blocks = cache(pool, 3, 10);
  EXPECT_EQ(allocate(pool, 2), ids({3, 2}));
  const auto events = pool.take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(std::get<BlockRemovedEvent>(events[0]).block_hashes[0], key_of(12).hash);
  EXPECT_EQ(std::get<BlockRemovedEvent>(events[1]).block_hashes[0], key_of(11).hash);
  EXPECT_FALSE(pool.find(key_of(12)).has_value());
  EXPECT_EQ(pool.find(key_of(10))->id, blocks[0]);
  EXPECT_EQ(pool.stats().evicted_blocks, 2U);
}

/// Requests match a prefix of some chain, pin it, allocate the rest, publish it and give all of it back from the end.
TEST_F(BlockPoolTest, NoBlockIsEvictedBeforeItsChild) {
  BlockPool pool(options(17));
  const auto key_at = [](std::size_t chain, std::size_t position) {
    return key_of(static_cast<std::uint8_t>(8 * chain + position + 1));
  };
  std::mt19937 random(5);
  std::deque<std::vector<BlockId>> alive;
  for (int request = 0; request < 3'000; ++request) {
    const std::size_t chain = random() % 5;
    std::vector<BlockId> blocks(1 + random() % 6);
    if (auto units = pool.try_reserve(static_cast<std::uint32_t>(blocks.size()))) {
      std::size_t hits = 0;
      for (; hits < blocks.size(); ++hits) {
        const auto found = pool.find(key_at(chain, hits));
        if (!found) break;
        ASSERT_TRUE(pool.pin(*found, key_at(chain, hits), *units));
        blocks[hits] = found->id;
      }
      pool.allocate(*units, std::span(blocks).subspan(hits));
      for (std::size_t i = hits; i < blocks.size(); ++i) ASSERT_TRUE(pool.publish(blocks[i], key_at(chain, i), 1));
      alive.push_back(blocks);
    }
    while (alive.size() > 1 + random() % 2) {
      ASSERT_TRUE(pool.free_blocks(std::vector<BlockId>(alive.front().rbegin(), alive.front().rend())));
      alive.pop_front();
    }
    for (std::size_t of = 0; of < 5; ++of) {
      for (std::size_t child = 1; child < 6; ++child) {
        if (!pool.find(key_at(of, child))) continue;
        ASSERT_TRUE(pool.find(key_at(of, child - 1)).has_value()) << "request " << request << ", chain " << of;
      }
    }
  }
  EXPECT_GT(pool.stats().evicted_blocks, 1'000U);
  EXPECT_GT(pool.stats().pinned_blocks, 1'000U);
}

TEST_F(BlockPoolTest, EvictionInPlaceKeepsThePlace) {
  BlockPool pool(options(5));
  cache(pool, 3, 1);
  EXPECT_EQ(pool.free_order(), ids({4, 3, 2, 1}));
  EXPECT_TRUE(pool.evict_blocks(ids({2})));
  EXPECT_FALSE(pool.unpublish(BlockId{2}));
  EXPECT_EQ(pool.free_order(), ids({4, 3, 2, 1}));
  EXPECT_EQ(pool.num_cached_keys(), 2U);
}

TEST_F(BlockPoolTest, DuplicatesAnswerFirstRegisteredFirst) {
  BlockPool pool(options(6));
  const auto blocks = allocate(pool, 3);
  for (const BlockId block : {blocks[1], blocks[0], blocks[2]}) ASSERT_TRUE(pool.publish(block, key_of(7), 4));
  EXPECT_EQ(pool.find(key_of(7))->id, blocks[1]);
  EXPECT_EQ(pool.num_cached_keys(), 1U);
  pool.unpublish(blocks[1]);
  EXPECT_EQ(pool.find(key_of(7))->id, blocks[0]);
  ASSERT_TRUE(pool.publish(blocks[1], key_of(7), 4));  // the last one now
  pool.unpublish(blocks[0]);
  EXPECT_EQ(pool.find(key_of(7))->id, blocks[2]);
  EXPECT_EQ(pool.stats().duplicate_keys, 3U);
}

TEST_F(BlockPoolTest, DuplicatesCanBeLeftOut) {
  BlockPoolOptions skip = options(4);
  skip.duplicates = DuplicatePolicy::skip;
  BlockPool pool(skip);
  const auto blocks = allocate(pool, 2);
  EXPECT_TRUE(pool.publish(blocks[0], key_of(7), 4));
  EXPECT_FALSE(pool.publish(blocks[1], key_of(7), 4));
  EXPECT_TRUE(pool.is_block_writable(blocks[1]));
}

TEST_F(BlockPoolTest, LastCopyAnnouncesOnlyTheLast) {
  BlockPoolOptions last = options(4);
  last.removal_events = RemovalEvents::last_copy;
  BlockPool pool(last);
  const auto blocks = allocate(pool, 2);
  for (const BlockId block : blocks) ASSERT_TRUE(pool.publish(block, key_of(1), 4));
  pool.unpublish(blocks[0]);
  EXPECT_TRUE(pool.take_events().empty());
  pool.unpublish(blocks[1]);
  EXPECT_EQ(pool.take_events().size(), 1U);
}

TEST_F(BlockPoolTest, SecondaryKeysFollowTheirBlock) {
  BlockPool pool(options(4));
  const auto blocks = allocate(pool, 2);
  ASSERT_TRUE(pool.publish(blocks[0], key_of(1), 16));
  EXPECT_TRUE(pool.publish(blocks[0], key_of(2), 8));
  EXPECT_FALSE(pool.publish(blocks[0], key_of(2), 8));
  EXPECT_EQ(pool.covered_tokens(blocks[0]), 16);
  EXPECT_TRUE(pool.has_key(blocks[0], key_of(2)));
  EXPECT_EQ(pool.find(key_of(2))->id, blocks[0]);
  EXPECT_EQ(pool.num_cached_keys(), 2U);
  pool.move_block_hashes(blocks[0], blocks[1]);
  EXPECT_TRUE(pool.take_events().empty());
  EXPECT_EQ(pool.find(key_of(1))->id, blocks[1]);
  EXPECT_EQ(pool.find(key_of(2))->id, blocks[1]);
  EXPECT_EQ(pool.covered_tokens(blocks[1]), 16);
  EXPECT_FALSE(pool.primary_key(blocks[0]).has_value());
  EXPECT_TRUE(pool.unpublish(blocks[1]));
  const auto events = pool.take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(std::get<BlockRemovedEvent>(events[0]).block_hashes[0], key_of(1).hash);
  EXPECT_TRUE(pool.check_invariants().ok());
}

TEST_F(BlockPoolTest, AMoveSaysWhetherTheTargetTookOver) {
  BlockPool pool(options(5));
  const auto blocks = allocate(pool, 4);
  EXPECT_FALSE(pool.move_block_hashes(blocks[0], blocks[1]));  // nothing to be moved
  ASSERT_TRUE(pool.publish(blocks[0], key_of(1), 16));
  ASSERT_TRUE(pool.publish(blocks[1], key_of(2), 16));
  EXPECT_FALSE(pool.move_block_hashes(blocks[0], blocks[1]));  // the target has a key
  EXPECT_FALSE(pool.move_block_hashes(blocks[0], blocks[0]));
  EXPECT_FALSE(pool.move_block_hashes(blocks[0], kNullBlock));
  ASSERT_TRUE(pool.free_blocks(std::span(blocks).subspan(3, 1)));
  EXPECT_FALSE(pool.move_block_hashes(blocks[0], blocks[3]));  // nobody holds it
  EXPECT_EQ(pool.primary_key(blocks[0]), key_of(1));
  EXPECT_EQ(pool.primary_key(blocks[1]), key_of(2));
  EXPECT_TRUE(pool.move_block_hashes(blocks[0], blocks[2]));
  EXPECT_EQ(pool.primary_key(blocks[2]), key_of(1));
  EXPECT_EQ(pool.counts().cached, 2U);
  EXPECT_TRUE(pool.check_invariants().ok()) << pool.check_invariants().error().message;
}

TEST_F(BlockPoolTest, PinVerifiesKeyAndGeneration) {
  BlockPool pool(options(3));
  cache(pool, 2, 1);
  const auto handle = pool.find(key_of(1));
  auto units = pool.try_reserve(1);
  const std::vector<BlockId> order = pool.free_order();
  ASSERT_EQ(order, (std::vector<BlockId>{pool.find(key_of(2))->id, handle->id}));
  EXPECT_FALSE(pool.pin(*pool.find(key_of(2)), key_of(1), *units));
  EXPECT_EQ(pool.free_order(), order);  // a pin in vain changes nothing, not even the place in the order
  EXPECT_TRUE(pool.pin(*handle, key_of(1), *units));
  EXPECT_EQ(units->remaining(), 0U);
  EXPECT_TRUE(pool.pin(*handle, key_of(1), *units));  // shared already: needs no unit
  EXPECT_EQ(pool.ref_count(handle->id), 2U);
  const auto other = pool.find(key_of(2));
  EXPECT_FALSE(pool.pin(*other, key_of(2), *units));  // free, and no unit is left
  EXPECT_TRUE(pool.pin(BlockHandle{}, key_of(2), *units));
  EXPECT_EQ(pool.stats().lost_pins, 1U);
}

TEST_F(BlockPoolTest, PinRefusesABlockThatWasRecycledAndCarriesTheSameKeyAgain) {
  BlockPool pool(options(2));
  const auto block = cache(pool, 1, 1);
  const auto before = pool.find(key_of(1));
  EXPECT_EQ(allocate(pool, 1), block);  // evicts the content
  EXPECT_TRUE(pool.publish(block[0], key_of(1), 1));
  const auto after = pool.find(key_of(1));
  ASSERT_TRUE(before && after);
  ASSERT_EQ(before->id, after->id);
  auto units = pool.try_reserve(0);
  EXPECT_FALSE(pool.pin(*before, key_of(1), *units)) << "the handle is of a former life of the block";
  EXPECT_TRUE(pool.pin(*after, key_of(1), *units));
  EXPECT_EQ(pool.stats().lost_pins, 1U);
}

TEST_F(BlockPoolTest, ReservationHoldsBackWhatOthersMayTake) {
  BlockPool pool(options(6));
  auto reservation = pool.try_reserve(2, 3);
  ASSERT_TRUE(reservation.has_value());
  EXPECT_FALSE(pool.try_reserve(1, 3).has_value());
  EXPECT_EQ(pool.counts().reserved, 2U);
  std::array<BlockId, 1> one;
  pool.allocate(*reservation, one);
  reservation->give_back(1);
  EXPECT_EQ(pool.num_free_blocks(), 4U);
  EXPECT_EQ(pool.counts().referenced, 1U);
}

TEST_F(BlockPoolTest, ResetRefusesWhileAnythingIsInUse) {
  BlockPool pool(options(4));
  cache(pool, 2, 1);
  const auto held = allocate(pool, 1);
  EXPECT_FALSE(pool.reset_prefix_cache());
  pool.free_blocks(held, 5);
  EXPECT_FALSE(pool.reset_prefix_cache());  // fenced
  pool.advance_fence(5);
  const auto order = pool.free_order();
  static_cast<void>(pool.take_events());
  EXPECT_TRUE(pool.reset_prefix_cache());
  EXPECT_EQ(pool.free_order(), order);
  EXPECT_EQ(pool.take_events(), (std::vector<KVEvent>{AllBlocksClearedEvent{}}));
  EXPECT_FALSE(pool.find(key_of(1)).has_value());
}

TEST_F(BlockPoolTest, FencedBlocksAreFoundButNotHandedOut) {
  BlockPool pool(options(3));
  const auto blocks = allocate(pool, 2);
  ASSERT_TRUE(pool.publish(blocks[0], key_of(1), 4));
  pool.free_blocks(blocks, 3);
  EXPECT_EQ(pool.num_free_blocks(), 0U);
  EXPECT_EQ(pool.counts().fenced, 2U);
  std::array<BlockId, 1> one;
  EXPECT_FALSE(pool.get_new_blocks(one));
  auto none = pool.try_reserve(0);
  ASSERT_TRUE(pool.pin(*pool.find(key_of(1)), key_of(1), *none));  // needs no unit
  pool.advance_fence(2);
  EXPECT_FALSE(pool.get_new_blocks(one));
  pool.advance_fence(3);
  EXPECT_EQ(pool.free_order(), ids({blocks[1].value()}));
  pool.free_blocks(std::span(blocks).first(1));
  EXPECT_EQ(pool.num_free_blocks(), 2U);
}

TEST_F(BlockPoolTest, SharedBlockWaitsForTheLatestFenceOfItsHolders) {
  BlockPool pool(options(2));
  const auto block = allocate(pool, 1);
  ASSERT_TRUE(pool.touch(block));
  pool.free_blocks(block, 9);
  pool.free_blocks(block);  // the last holder names none
  EXPECT_EQ(pool.num_free_blocks(), 0U);
  pool.advance_fence(9);
  EXPECT_EQ(pool.num_free_blocks(), 1U);
}

TEST_F(BlockPoolTest, BlocksThatComeAndGoWhileAFenceIsOpenLeaveRoomForOthers) {
  BlockPool pool(options(5));
  const std::vector<BlockId> blocks = allocate(pool, 4);
  pool.free_blocks(std::span(blocks).first(1), 5);
  ASSERT_TRUE(pool.publish(blocks[1], key_of(1), 16));
  auto none = pool.try_reserve(0);
  for (int i = 0; i < 40; ++i) {  // each time an entry stays behind the first block's
    pool.free_blocks(std::span(blocks).subspan(1, 1), 5);
    ASSERT_TRUE(pool.pin(pool.handle(blocks[1]), key_of(1), *none));
  }
  pool.free_blocks(std::span(blocks).last(3), 5);
  pool.advance_fence(5);
  EXPECT_EQ(pool.num_free_blocks(), 4U);
}

TEST_F(BlockPoolTest, ManyPassedFencesMoveInPortionsUnlessNeeded) {
  BlockPool pool(options(301));
  const auto blocks = allocate(pool, 300);
  pool.free_blocks(blocks, 1);
  pool.advance_fence(1);
  EXPECT_EQ(pool.num_free_blocks(), 64U);
  std::vector<BlockId> all(300);
  EXPECT_TRUE(pool.get_new_blocks(all));
}

TEST_F(BlockPoolTest, FindPrefixEqualsFindOneByOne) {
  BlockPool pool(options(101));
  const auto blocks = allocate(pool, 60);
  std::vector<BlockHash> chain;
  for (std::uint8_t i = 0; i < 60; ++i) {
    ASSERT_TRUE(pool.publish(blocks[i], key_of(i, 2), i));
    chain.push_back(key_of(i).hash);
  }
  chain.push_back(key_of(200).hash);
  std::vector<BlockHandle> out(61);
  EXPECT_EQ(pool.find_prefix({chain, 1}, GroupId{2}, out), 60U);
  for (std::size_t i = 0; i < 60; ++i) EXPECT_EQ(out[i], *pool.find(key_of(static_cast<std::uint8_t>(i), 2)));
  EXPECT_EQ(pool.find_prefix({chain, 1}, GroupId{1}, out), 0U);
  EXPECT_EQ(pool.find_prefix({chain, 2}, GroupId{2}, out), 30U);
  EXPECT_EQ(out[3].id, blocks[7]);
  EXPECT_EQ(pool.find_prefix({chain, 1}, GroupId{2}, std::span(out).first(5)), 5U);
}

TEST_F(BlockPoolTest, OptionsThatAllowNoPoolAreRefused) {
  BlockPoolOptions bad = options(4);
  bad.ring_slots = 3;
  EXPECT_THROW(BlockPool{bad}, std::invalid_argument);
  bad = options(4);
  bad.num_shards = 300;
  EXPECT_THROW(BlockPool{bad}, std::invalid_argument);
  EXPECT_THROW(BlockPool{options((1U << 29U) + 1)}, std::invalid_argument);
  bad = options(4);
  bad.index_buckets = (1U << 28U) + 1;
  EXPECT_THROW(BlockPool{bad}, std::invalid_argument);
}

TEST_F(BlockPoolTest, OtherShardsAreRobbedBeforeAnAllocationFails) {
  BlockPoolOptions sharded = options(40);
  sharded.num_shards = 4;
  BlockPool pool(sharded);
  std::vector<BlockId> all = allocate(pool, 39);
  std::sort(all.begin(), all.end());
  for (std::uint32_t i = 0; i < 39; ++i) EXPECT_EQ(all[i], BlockId{i + 1});
  EXPECT_GE(pool.stats().stolen_blocks, 29U);
  pool.free_blocks(all);
  EXPECT_TRUE(pool.check_invariants().ok());
}

}  // namespace
}  // namespace kvpool
