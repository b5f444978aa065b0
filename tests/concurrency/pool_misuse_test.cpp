// Broken contracts and odd requests: defined, refused, nothing lost.
#include <mutex>

#include "kvpool/foundation/contract.hpp"
#include "kvpool/pool/locked_block_pool.hpp"
#include "tests/concurrency/pool_workload.hpp"

namespace kvpool::testing {
namespace {

std::mutex breaches_mutex;
std::vector<ContractBreach> breaches;

void record_breach(const ContractViolation& violation) {
  const std::lock_guard lock(breaches_mutex);
  breaches.push_back(violation.breach);
}

template <class Pool>
class PoolMisuse : public ::testing::Test {
 protected:
  PoolMisuse() {
    breaches.clear();
    set_contract_handler(&record_breach);
  }
  ~PoolMisuse() override { set_contract_handler(nullptr); }

  static std::vector<ContractBreach> take_breaches() {
    const std::lock_guard lock(breaches_mutex);
    return std::exchange(breaches, {});
  }
  static BlockPoolOptions options(std::uint32_t blocks, std::uint32_t shards = 1) {
    BlockPoolOptions result;
    result.num_blocks = blocks;
    result.num_shards = shards;
    return result;
  }
  using Breaches = std::vector<ContractBreach>;
};

using Pools = ::testing::Types<BlockPool, LockedBlockPool>;
TYPED_TEST_SUITE(PoolMisuse, Pools);

TYPED_TEST(PoolMisuse, BlockListedTwiceInOneReleaseIsFreedOnce) {
  TypeParam pool(this->options(5));
  std::array<BlockId, 2> blocks;
  ASSERT_TRUE(pool.get_new_blocks(blocks));
  const std::array<BlockId, 3> list{blocks[0], blocks[0], blocks[1]};
  EXPECT_FALSE(pool.free_blocks(list));
  EXPECT_EQ(this->take_breaches(), (typename TestFixture::Breaches{ContractBreach::double_free}));
  expect_at_rest(pool);
}

TYPED_TEST(PoolMisuse, NullBlockIsIgnoredEverywhere) {
  TypeParam pool(this->options(3));
  const std::array<BlockId, 2> nulls{kNullBlock, kNullBlock};
  EXPECT_TRUE(pool.touch(nulls));
  EXPECT_TRUE(pool.free_blocks(nulls));
  EXPECT_TRUE(pool.free_blocks(nulls, 7));
  auto none = pool.try_reserve(0);
  EXPECT_TRUE(pool.pin(pool.handle(kNullBlock), make_key(1), *none));
  EXPECT_TRUE(pool.free_blocks(std::array{pool.handle(kNullBlock), BlockHandle{}}));
  EXPECT_TRUE(pool.evict_blocks(nulls));
  EXPECT_FALSE(pool.publish(kNullBlock, make_key(1), 4));
  EXPECT_FALSE(pool.unpublish(kNullBlock));
  EXPECT_FALSE(pool.is_block_writable(kNullBlock));
  EXPECT_EQ(pool.ref_count(kNullBlock), 0U);
  EXPECT_TRUE(this->take_breaches().empty());
  expect_at_rest(pool);
}

TYPED_TEST(PoolMisuse, UnknownBlocksAreReportedAndTheOthersReleased) {
  TypeParam pool(this->options(4));
  std::array<BlockId, 1> blocks;
  ASSERT_TRUE(pool.get_new_blocks(blocks));
  const std::array<BlockId, 2> list{BlockId{4}, blocks[0]};
  EXPECT_FALSE(pool.free_blocks(list));
  EXPECT_FALSE(pool.touch(list));
  EXPECT_FALSE(pool.evict_blocks(list));
  EXPECT_FALSE(pool.publish(BlockId{99}, make_key(1), 1));
  EXPECT_FALSE(pool.unpublish(BlockId{99}));
  EXPECT_EQ(this->take_breaches(), (typename TestFixture::Breaches(5, ContractBreach::unknown_block)));
  expect_at_rest(pool);
}

TYPED_TEST(PoolMisuse, HandlesOfAnotherPoolOrLifeAreRefused) {
  TypeParam pool(this->options(3));
  TypeParam other(this->options(3));
  std::array<BlockId, 1> blocks;
  ASSERT_TRUE(pool.get_new_blocks(blocks));
  ASSERT_TRUE(pool.publish(blocks[0], make_key(1), 1));
  const BlockHandle handle = pool.handle(blocks[0]);
  auto none = other.try_reserve(0);
  EXPECT_FALSE(other.pin(handle, make_key(1), *none));
  EXPECT_FALSE(other.free_blocks(std::array{handle}));
  EXPECT_EQ(this->take_breaches(),
            (typename TestFixture::Breaches{ContractBreach::foreign_handle, ContractBreach::foreign_handle}));
  EXPECT_TRUE(pool.free_blocks(std::array{handle}));
  std::array<BlockId, 2> all;
  ASSERT_TRUE(pool.get_new_blocks(all));  // recycles the block
  auto units = pool.try_reserve(0);
  EXPECT_FALSE(pool.pin(handle, make_key(1), *units));
  EXPECT_FALSE(pool.free_blocks(std::array{handle}));
  EXPECT_EQ(this->take_breaches(), (typename TestFixture::Breaches{ContractBreach::stale_handle}));
  EXPECT_TRUE(pool.free_blocks(all));
  expect_at_rest(pool);
}

TYPED_TEST(PoolMisuse, ReferencesBeyondTheWidthAreRefused) {
  TypeParam pool(this->options(2));
  std::array<BlockId, 1> block;
  ASSERT_TRUE(pool.get_new_blocks(block));
  for (std::uint32_t i = 1; i < 65'534; ++i) ASSERT_TRUE(pool.touch(block));
  EXPECT_EQ(pool.ref_count(block[0]), 65'534U);
  EXPECT_FALSE(pool.touch(block));
  EXPECT_EQ(this->take_breaches(), (typename TestFixture::Breaches{ContractBreach::ref_overflow}));
  EXPECT_EQ(pool.ref_count(block[0]), 65'534U);
  for (std::uint32_t i = 0; i < 65'534; ++i) ASSERT_TRUE(pool.free_blocks(block));
  expect_at_rest(pool);
}

TYPED_TEST(PoolMisuse, EmptyRequestsAndThePoolOfOneBlock) {
  EXPECT_THROW(TypeParam(this->options(0)), std::invalid_argument);
  TypeParam pool(this->options(1));
  EXPECT_EQ(pool.num_free_blocks(), 0U);
  EXPECT_EQ(pool.usage(), 0.0);
  EXPECT_TRUE(pool.get_new_blocks({}));
  EXPECT_TRUE(pool.touch({}));
  EXPECT_TRUE(pool.free_blocks(std::span<const BlockId>{}));
  EXPECT_TRUE(pool.free_blocks(std::span<const BlockHandle>{}));
  EXPECT_TRUE(pool.evict_blocks({}));
  auto none = pool.try_reserve(0);
  pool.allocate(*none, {});
  EXPECT_EQ(pool.find_prefix({}, GroupId{0}, {}), 0U);
  EXPECT_EQ(pool.pin_prefix({}, {}, GroupId{0}, *none), 0U);
  EXPECT_EQ(pool.publish_chain({}, {}, GroupId{0}, 0, 1), 0U);
  std::array<BlockId, 1> block;
  EXPECT_FALSE(pool.get_new_blocks(block));
  EXPECT_TRUE(pool.try_reserve(0).has_value());
  EXPECT_FALSE(pool.try_reserve(1).has_value());
  EXPECT_FALSE(pool.try_reserve(0, 1).has_value());
  EXPECT_FALSE(pool.find(make_key(1)).has_value());
  EXPECT_TRUE(pool.reset_prefix_cache());
  EXPECT_TRUE(this->take_breaches().empty());
  expect_at_rest(pool);
}

TYPED_TEST(PoolMisuse, ReservationsAreNotStretchedNorTakenFromAnotherPool) {
  TypeParam pool(this->options(5));
  TypeParam other(this->options(5));
  const typename TestFixture::Breaches once{ContractBreach::reservation_misuse};
  std::array<BlockId, 3> blocks{};
  auto two = pool.try_reserve(2);
  ASSERT_FALSE(pool.allocate(*two, blocks));
  EXPECT_EQ(this->take_breaches(), once);
  EXPECT_EQ(two->remaining(), 2U);
  EXPECT_FALSE(other.allocate(*two, std::span(blocks).first(1)));
  EXPECT_EQ(this->take_breaches(), once);
  EXPECT_EQ(blocks, (std::array<BlockId, 3>{}));
  std::array<BlockId, 1> cached;
  ASSERT_TRUE(other.get_new_blocks(cached));
  ASSERT_TRUE(other.publish(cached[0], make_key(1), 1));
  const BlockHandle handle = other.handle(cached[0]);
  ASSERT_TRUE(other.free_blocks(cached));
  EXPECT_FALSE(other.pin(handle, make_key(1), *two));
  const BlockKey key = make_key(1);
  EXPECT_EQ(other.pin_prefix(std::array{handle}, {std::span(&key.hash, 1), 1}, key.group, *two), 0U);
  EXPECT_EQ(this->take_breaches(),
            (typename TestFixture::Breaches{ContractBreach::reservation_misuse, ContractBreach::reservation_misuse}));
  two->give_back(3);  // two are given back
  EXPECT_EQ(this->take_breaches(), once);
  EXPECT_EQ(two->remaining(), 0U);
  auto four = pool.try_reserve(4);
  ASSERT_TRUE(four.has_value());
  EXPECT_TRUE(pool.allocate(*four, blocks));
  EXPECT_TRUE(pool.free_blocks(blocks));
  four->give_back(1);
  EXPECT_TRUE(this->take_breaches().empty());
  expect_at_rest(pool);
  expect_at_rest(other);
}

TYPED_TEST(PoolMisuse, AbandonedReservationsComeBack) {
  TypeParam pool(this->options(9, 2));
  std::thread([&pool] {
    auto first = pool.try_reserve(5);
    ASSERT_TRUE(first.has_value());
    auto second = pool.try_reserve(3);
    *first = std::move(*second);  // gives 5 back, keeps 3
    EXPECT_EQ(pool.num_free_blocks(), 5U);
    EXPECT_EQ(second->remaining(), 0U);
    EXPECT_FALSE(pool.reset_prefix_cache());
  }).join();
  expect_at_rest(pool);
}

TYPED_TEST(PoolMisuse, WhatAReservationGaveBackItDoesNotGiveAgain) {
  TypeParam pool(this->options(9, 2));
  {
    auto reservation = pool.try_reserve(6);
    ASSERT_TRUE(reservation.has_value());
    reservation->give_back(2);
    EXPECT_EQ(reservation->remaining(), 4U);
    EXPECT_EQ(pool.num_free_blocks(), 4U);
    std::array<BlockId, 3> blocks;
    pool.allocate(*reservation, blocks);
    EXPECT_EQ(reservation->remaining(), 1U);
    auto moved = std::move(*reservation);
    EXPECT_TRUE(pool.free_blocks(blocks));
    EXPECT_EQ(pool.num_free_blocks(), 7U);
  }
  expect_at_rest(pool);
}

TYPED_TEST(PoolMisuse, AThreadThatEndsLeavesNothingBehindButWhatItHolds) {
  TypeParam pool(this->options(9, 2));
  std::vector<BlockId> held(3);
  BlockHandle handle;
  std::thread([&] {
    ASSERT_TRUE(pool.get_new_blocks(held));
    ASSERT_TRUE(pool.publish(held[0], make_key(1), 1));
    handle = pool.handle(held[0]);
    auto reservation = pool.try_reserve(4);  // never collected
    ASSERT_TRUE(reservation.has_value());
  }).join();
  // References and handles belong to nobody in particular: another thread goes on with them.
  EXPECT_EQ(pool.num_free_blocks(), 5U);
  auto none = pool.try_reserve(0);
  EXPECT_TRUE(pool.pin(handle, make_key(1), *none));
  EXPECT_EQ(pool.ref_count(held[0]), 2U);
  EXPECT_TRUE(pool.free_blocks(std::array{handle}));
  EXPECT_TRUE(pool.free_blocks(held));
  EXPECT_TRUE(this->take_breaches().empty());
  expect_at_rest(pool);
}

TYPED_TEST(PoolMisuse, APinBeyondTheWidthIsRefused) {
  TypeParam pool(this->options(2));
  std::array<BlockId, 1> block;
  ASSERT_TRUE(pool.get_new_blocks(block));
  ASSERT_TRUE(pool.publish(block[0], make_key(1), 1));
  for (std::uint32_t i = 1; i < 65'534; ++i) ASSERT_TRUE(pool.touch(block));
  auto none = pool.try_reserve(0);
  EXPECT_FALSE(pool.pin(pool.handle(block[0]), make_key(1), *none));
  EXPECT_EQ(pool.ref_count(block[0]), 65'534U);
  for (std::uint32_t i = 0; i < 65'534; ++i) ASSERT_TRUE(pool.free_blocks(block));
  expect_at_rest(pool);
}

TYPED_TEST(PoolMisuse, EveryKindOfFreeRefusesASecondRelease) {
  TypeParam pool(this->options(5));
  std::array<BlockId, 2> blocks;
  ASSERT_TRUE(pool.get_new_blocks(blocks));
  ASSERT_TRUE(pool.publish(blocks[0], make_key(1), 1));
  const std::array handles{pool.handle(blocks[0]), pool.handle(blocks[1])};
  EXPECT_TRUE(pool.free_blocks(blocks, 3));  // waits: neither referenced nor free
  EXPECT_FALSE(pool.free_blocks(blocks, 3));
  EXPECT_FALSE(pool.free_blocks(blocks));
  EXPECT_FALSE(pool.free_blocks(handles));  // same life, no reference
  EXPECT_EQ(this->take_breaches(), (typename TestFixture::Breaches(6, ContractBreach::double_free)));
  pool.advance_fence(3);
  EXPECT_FALSE(pool.free_blocks(blocks));  // free
  EXPECT_EQ(this->take_breaches(), (typename TestFixture::Breaches(2, ContractBreach::double_free)));
  expect_at_rest(pool);
}

/// The extent of the check: a handle knows its life modulo 4,096.
TYPED_TEST(PoolMisuse, AHandleIsStaleForTheNext4095Lives) {
  TypeParam pool(this->options(2));
  std::array<BlockId, 1> block;
  ASSERT_TRUE(pool.get_new_blocks(block));
  const std::array old{pool.handle(block[0])};
  ASSERT_TRUE(pool.free_blocks(block));
  for (int life = 1; life < 4'096; ++life) {
    ASSERT_TRUE(pool.get_new_blocks(block));
    ASSERT_FALSE(pool.free_blocks(old)) << "life " << life;
    ASSERT_TRUE(pool.free_blocks(block));
  }
  EXPECT_EQ(this->take_breaches(), (typename TestFixture::Breaches(4'095, ContractBreach::stale_handle)));
  ASSERT_TRUE(pool.get_new_blocks(block));
  EXPECT_TRUE(pool.free_blocks(old));  // the number has come round
  expect_at_rest(pool);
}

TEST(PoolWithAFullIndex, RefusesAKeyAndTakesItLater) {
  BlockPoolOptions options;
  options.num_blocks = 10;
  options.num_shards = 1;
  options.index_buckets = 1;  // seven slots
  BlockPool pool(options);
  std::array<BlockId, 9> blocks;
  ASSERT_TRUE(pool.get_new_blocks(blocks));
  for (std::uint64_t i = 0; i < 7; ++i) ASSERT_TRUE(pool.publish(blocks[i], make_key(i + 1), 1));
  ASSERT_TRUE(pool.touch(std::span(blocks).subspan(7, 1)));  // shared: its writer wins a flag and must drop it
  EXPECT_FALSE(pool.publish(blocks[7], make_key(8), 1));
  EXPECT_FALSE(pool.publish(blocks[8], make_key(9), 1));
  EXPECT_EQ(pool.stats().index_full, 2U);
  EXPECT_TRUE(pool.unpublish(blocks[0]));
  EXPECT_TRUE(pool.publish(blocks[7], make_key(8), 1));
  EXPECT_TRUE(pool.find(make_key(8)).has_value());
  EXPECT_TRUE(pool.free_blocks(std::span(blocks).subspan(7, 1)));
  EXPECT_TRUE(pool.free_blocks(blocks));
  expect_at_rest(pool);
}

TYPED_TEST(PoolMisuse, TwoThreadsReleaseTheSameBlock) {
  TypeParam pool(this->options(5, 2));
  std::size_t refusals = 0;
  for (int round = 0; round < 300; ++round) {
    std::array<BlockId, 2> blocks;
    ASSERT_TRUE(pool.get_new_blocks(blocks));
    std::array<bool, 2> good{};
    std::thread first([&] { good[0] = pool.free_blocks(blocks); });
    std::thread second([&] { good[1] = pool.free_blocks(blocks); });
    first.join();
    second.join();
    refusals += (good[0] ? 0U : 1U) + (good[1] ? 0U : 1U);
  }
  EXPECT_GE(refusals, 300U);
  EXPECT_EQ(this->take_breaches().size(), 600U);  // every reference existed once
  expect_at_rest(pool);
}

TYPED_TEST(PoolMisuse, ManyShortLivedThreads) {
  TypeParam pool(this->options(33, 2));
  constexpr std::size_t kTotal = 10'000;
  std::atomic<std::size_t> served{0};
  for (std::size_t started = 0; started < kTotal; started += 4) {
    std::array<std::thread, 4> threads;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      threads[i] = std::thread([&pool, &served, number = started + i] {
        std::array<BlockId, 3> blocks;  // twelve of 32 at a time: nobody may be refused
        if (!pool.get_new_blocks(blocks)) return;
        const bool published = pool.publish(blocks[0], make_key(number % 16 + 1), 1);
        if (pool.free_blocks(blocks) && published) served.fetch_add(1, std::memory_order_relaxed);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(served.load(), kTotal);
  const PoolStats stats = pool.stats();
  EXPECT_EQ(stats.allocated_blocks, 3 * kTotal);
  EXPECT_EQ(stats.released_references, 3 * kTotal);
  EXPECT_EQ(stats.published_keys, kTotal);
  EXPECT_TRUE(this->take_breaches().empty());
  expect_at_rest(pool);
}

}  // namespace
}  // namespace kvpool::testing
