// References, leaks, hits and eviction: kinds 1 to 4 of the reports.
#include "tests/field/pool_field.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>

namespace kvpool::testing {
namespace {

/// On a thread with 256 KiB of stack: whatever recursed once a block would end there.
void on_a_small_stack(std::function<void()> body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, std::size_t{256} << 10U), 0);
  const auto run = [](void* call) -> void* {
    (*static_cast<std::function<void()>*>(call))();
    return nullptr;
  };
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &body), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST_F(PoolField, F001_ReferencesCountHoldersNotTablePositions) {
  BlockPool pool(pool_of(8));
  const auto ring = allocate(pool, 2);  // the parent's table is p0 p1 p0 p1
  ASSERT_TRUE(pool.touch(ring));        // the fork references each block once
  EXPECT_EQ(pool.ref_count(ring[0]), 2U);
  EXPECT_EQ(pool.ref_count(ring[1]), 2U);
  const auto copy = allocate(pool, 1);  // the child writes into p1
  pool.free_blocks(std::array{ring[1]});
  EXPECT_EQ(pool.ref_count(ring[1]), 1U);
  EXPECT_TRUE(pool.free_blocks(std::array{ring[0], copy[0]}));
  EXPECT_TRUE(pool.free_blocks(ring));
  EXPECT_EQ(pool.num_free_blocks(), 8U);
}

TEST_F(PoolField, F002_UsageFallsBackToZeroAfterEveryRequest) {
  BlockPool pool(pool_of(10));
  for (std::uint64_t request = 0; request < 100; ++request) {
    const auto blocks = allocate(pool, 3);
    publish(pool, blocks, 1 + 3 * request);
    EXPECT_GE(pool.usage(), 0.0);
    EXPECT_LE(pool.usage(), 1.0);
    free_reversed(pool, blocks);
    EXPECT_EQ(pool.usage(), 0.0);
    EXPECT_EQ(pool.num_free_blocks(), 10U);
    EXPECT_EQ(pool.counts().referenced, 0U);
  }
}

TEST_F(PoolField, F003_WarmCacheIsNotAFullPool) {
  BlockPool pool(pool_of(10));
  const auto a = allocate(pool, 10);
  publish(pool, a, 1);
  free_reversed(pool, a);
  EXPECT_EQ(pool.num_free_blocks(), 10U);
  auto b = pool.try_reserve(3, 1);
  ASSERT_TRUE(b.has_value());
  std::vector<BlockId> blocks(3);
  pool.allocate(*b, blocks);
  EXPECT_EQ(pool.counts().cached, 7U);
}

TEST_F(PoolField, F004_CachedBlocksAreCountedOncePerBlock) {
  for (const bool a_first : {true, false}) {
    BlockPool pool(pool_of(16));
    const auto a = allocate(pool, 8);
    const auto b = allocate(pool, 8);
    publish(pool, a, 1);
    for (std::size_t i = 0; i < 8; ++i) pool.publish(b[i], make_key(i < 4 ? 1 + i : 100 + i), 4);
    free_reversed(pool, a_first ? a : b);
    free_reversed(pool, a_first ? b : a);
    EXPECT_EQ(pool.num_free_blocks(), 16U);
    EXPECT_LE(pool.counts().cached, 16U);
    EXPECT_TRUE(pool.check_invariants().ok());
  }
}

TEST_F(PoolField, F005_SlotReleasedByTwoPathsReturnsOnce) {
  BlockPool pool(pool_of(4));
  const auto blocks = allocate(pool, 3);
  EXPECT_TRUE(pool.free_blocks(blocks));
  EXPECT_FALSE(pool.free_blocks(std::span(blocks).last(1)));  // "cancel look-ahead" after the end
  EXPECT_EQ(pool.num_free_blocks(), 4U);
  EXPECT_EQ(pool.free_order().size(), 4U);
}

TEST_F(PoolField, F006_ReservationThatIsNotUsedLeavesNoTrace) {
  for (int order = 0; order < 2; ++order) {
    BlockPool full(pool_of(4));
    BlockPool state(pool_of(4));
    const auto a = allocate(full, 4);
    const auto b = allocate(state, 1);
    for (int attempt = 0; attempt < 100; ++attempt) {
      auto first = (order == 0 ? state : full).try_reserve(order == 0 ? 1 : 2);
      auto second = (order == 0 ? full : state).try_reserve(order == 0 ? 2 : 1);
      EXPECT_FALSE(first.has_value() && second.has_value());
    }
    EXPECT_EQ(state.num_free_blocks(), 3U);
    full.free_blocks(a);
    state.free_blocks(b);
    EXPECT_TRUE(full.try_reserve(2).has_value() && state.try_reserve(1).has_value());
  }
}

TEST_F(PoolField, F007_RecycledDuplicateIsHashedAnew) {
  BlockPool pool(pool_of(4));
  const auto both = allocate(pool, 2);
  for (const BlockId block : both) ASSERT_TRUE(pool.publish(block, make_key(7), 4));
  pool.free_blocks(std::array{both[1], both[0]});
  static_cast<void>(allocate(pool, 2));  // the blank ones
  const auto recycled = allocate(pool, 1);
  EXPECT_EQ(recycled[0], both[1]);
  EXPECT_FALSE(pool.primary_key(recycled[0]).has_value());
  EXPECT_TRUE(pool.publish(recycled[0], make_key(8), 4));
  EXPECT_EQ(pool.find(make_key(7))->id, both[0]);
  BlockPool loop(pool_of(4));
  for (std::uint64_t i = 0; i < scaled(20'000, 100'000); ++i) {
    const auto pair = allocate(loop, 2);
    for (const BlockId block : pair) loop.publish(block, make_key(1 + i / 2), 4);
    loop.free_blocks(pair);
  }
  EXPECT_LE(loop.num_cached_keys(), 4U);
  EXPECT_TRUE(loop.check_invariants().ok());
}

TEST_F(PoolField, F008_NullBlockIsNeverCountedNorHandedOut) {
  BlockPool pool(pool_of(4));
  for (int request = 0; request < 100; ++request) {
    auto blocks = allocate(pool, 2);
    EXPECT_NE(blocks[0], kNullBlock);
    EXPECT_NE(blocks[1], kNullBlock);
    blocks.push_back(kNullBlock);  // a window group pads its table
    ASSERT_TRUE(pool.touch(std::span(blocks).last(1)));
    EXPECT_FALSE(pool.publish(kNullBlock, make_key(1), 4));
    pool.free_blocks(blocks);
    EXPECT_EQ(pool.ref_count(kNullBlock), 0U);
  }
  EXPECT_EQ(pool.free_order().size(), 4U);
}

TEST_F(PoolField, F009_LongChainsAreTornDownWithoutRecursion) {
  // One chain of blocks and one of announcements; both are alive when the pool ends.
  const auto length = static_cast<std::uint32_t>(scaled(100'000, 1'000'000));
  std::size_t published = 0;
  on_a_small_stack([&] {
    BlockPoolOptions options = pool_of(length);
    options.enable_events = true;
    BlockPool pool(options);
    std::vector<BlockId> blocks(length);
    ASSERT_TRUE(pool.get_new_blocks(blocks));
    for (std::uint64_t i = 0; i < length; ++i) {
      published += pool.publish(blocks[i], make_key(i + 1), 1) ? 1U : 0U;
      pool.append_event(AllBlocksClearedEvent{});
    }
    free_reversed(pool, blocks);
    EXPECT_EQ(pool.num_free_blocks(), length);
  });
  EXPECT_EQ(published, length);
}

TEST_F(PoolField, F010_NothingIsLeftAfterThePool) {
  // The leak checker of the ASan build is the judge: keys, records, fences and events are alive at the end.
  BlockPoolOptions options = pool_of(8);
  options.enable_events = true;
  BlockPool pool(options);
  const auto blocks = allocate(pool, 4);
  publish(pool, blocks, 1);
  pool.publish(blocks[0], make_key(50), 2);
  pool.free_blocks(std::span(blocks).first(2), 9);
  pool.unpublish(blocks[0]);
  EXPECT_EQ(pool.counts().fenced, 2U);
}

TEST_F(PoolField, F011_PublishAfterReleaseDoesNothing) {
  BlockPool pool(pool_of(4));
  const auto blocks = allocate(pool, 3);
  pool.free_blocks(blocks);
  EXPECT_EQ(pool.num_free_blocks(), 4U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FALSE(pool.publish(blocks[i], make_key(1 + i), 4));
  EXPECT_EQ(hits(pool, 1, 3), 0U);
  bool other = true;
  std::thread([&] { other = pool.free_blocks(blocks); }).join();
  EXPECT_FALSE(other);
  EXPECT_FALSE(pool.free_blocks(blocks));
  expect_at_rest(pool);
}

TEST_F(PoolField, F012_ReferencedBlockIsNeverAVictim) {
  BlockPool pool(pool_of(4));
  const auto held = allocate(pool, 1);
  publish(pool, held, 1);
  std::vector<BlockId> too_many(4);
  EXPECT_FALSE(pool.get_new_blocks(too_many));
  EXPECT_TRUE(pool.evict_blocks(held));  // loses its key, not its reference
  EXPECT_EQ(pool.ref_count(held[0]), 1U);
  const auto rest = allocate(pool, 3);
  EXPECT_EQ(std::count(rest.begin(), rest.end(), held[0]), 0);
}

TEST_F(PoolField, F017_ResetIsRefusedWhileARequestRuns) {
  BlockPoolOptions options = pool_of(4);
  options.enable_events = true;
  BlockPool pool(options);
  const auto a = allocate(pool, 2);
  publish(pool, a, 1);
  EXPECT_FALSE(pool.reset_prefix_cache());
  EXPECT_EQ(hits(pool, 1, 2), 2U);
  EXPECT_TRUE(pool.take_events().empty());
  free_reversed(pool, a);
  EXPECT_TRUE(pool.reset_prefix_cache());
  EXPECT_EQ(hits(pool, 1, 2), 0U);
  EXPECT_EQ(pool.take_events(), (std::vector<KVEvent>{AllBlocksClearedEvent{}}));
  expect_at_rest(pool);
}

TEST_F(PoolField, F020_RecycledBlockIsNotFoundUnderItsOldKey) {
  BlockPool pool(pool_of(2));
  const auto a = allocate(pool, 1);
  publish(pool, a, 1);
  free_reversed(pool, a);
  static_cast<void>(allocate(pool, 2));
  EXPECT_EQ(hits(pool, 1, 1), 0U);
}

TEST_F(PoolField, F023_TheTailIsEvictedFirst) {
  for (int run = 0; run < 200; ++run) {
    BlockPool pool(pool_of(3));
    const auto a = allocate(pool, 3);
    publish(pool, a, 1);
    free_reversed(pool, a);
    const auto b = allocate(pool, 1);
    EXPECT_EQ(b[0], a[2]);
    pool.free_blocks(b);
    EXPECT_EQ(hits(pool, 1, 3), 2U);
  }
}

TEST_F(PoolField, F024_HalfFilledBlocksDoNotAgeTheCache) {
  BlockPool pool(pool_of(6));
  const auto a = allocate(pool, 5);  // four full blocks and a partial one
  publish(pool, {a.begin(), a.begin() + 4}, 1);
  free_reversed(pool, a);
  for (int request = 0; request < 10; ++request) pool.free_blocks(allocate(pool, 1));
  EXPECT_EQ(hits(pool, 1, 4), 4U);
}

TEST_F(PoolField, F029_HopelessRequestEvictsNothing) {
  BlockPoolOptions options = pool_of(8);
  options.enable_events = true;
  BlockPool pool(options);
  const auto a = allocate(pool, 8);
  publish(pool, a, 1);
  free_reversed(pool, a);
  std::vector<BlockId> nine(9);
  EXPECT_FALSE(pool.get_new_blocks(nine));
  std::array<BlockId, 5> pinned;
  std::copy_n(a.begin(), 5, pinned.begin());
  ASSERT_TRUE(pool.touch(pinned));
  std::vector<BlockId> four(4);
  EXPECT_FALSE(pool.get_new_blocks(four));
  EXPECT_EQ(pool.stats().evicted_blocks, 0U);
  EXPECT_TRUE(pool.take_events().empty());
  EXPECT_EQ(hits(pool, 1, 8), 8U);
}

TEST_F(PoolField, F042_FreshBlockHasOneReference) {
  BlockPool pool(pool_of(2));
  const auto block = allocate(pool, 1);
  EXPECT_EQ(pool.ref_count(block[0]), 1U);
  EXPECT_TRUE(pool.free_blocks(block));
  EXPECT_FALSE(pool.free_blocks(block));
  EXPECT_EQ(pool.ref_count(block[0]), 0U);
}

}  // namespace
}  // namespace kvpool::testing
