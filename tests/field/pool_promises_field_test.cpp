// Reports about promises that a pool makes over time: announced and taken capacity, work in flight, events.
#include <random>

#include "tests/field/pool_field.hpp"

namespace kvpool::testing {
namespace {

TEST_F(PoolField, F036_WhatIsAnnouncedIsWhatIsTaken) {
  BlockPool pool(pool_of(20));
  std::mt19937 random(36);
  std::vector<std::vector<BlockId>> alive;
  std::uint64_t key = 1;
  int refused = 0;
  for (int step = 0; step < 2'000; ++step) {
    const auto wanted = static_cast<std::uint32_t>(1 + random() % 8);
    const auto keep_free = static_cast<std::uint32_t>(random() % 3);
    const bool announced = pool.num_free_blocks() >= wanted + keep_free;
    const auto order = pool.free_order();
    const auto counts = pool.counts();
    auto reservation = pool.try_reserve(wanted, keep_free);
    ASSERT_EQ(reservation.has_value(), announced);
    if (reservation) {
      std::vector<BlockId> blocks(wanted);
      pool.allocate(*reservation, blocks);
      ASSERT_EQ(counts.free - pool.num_free_blocks(), wanted);
      publish(pool, blocks, key);
      key += wanted;
      alive.push_back(std::move(blocks));
    } else {
      ++refused;
      ASSERT_EQ(pool.free_order(), order);  // a refusal leaves no trace
      ASSERT_EQ(pool.counts().cached, counts.cached);
    }
    while (!alive.empty() && random() % 3 != 0) {
      free_reversed(pool, alive.back());
      alive.pop_back();
    }
  }
  EXPECT_GT(refused, 0);
}

TEST_F(PoolField, F095_AChainIsAnnouncedBlockByBlock) {
  for (const std::uint32_t length : {512U, 2'048U}) {
    BlockPoolOptions options = pool_of(length);
    options.enable_events = true;
    BlockPool pool(options);
    const auto blocks = allocate(pool, length);
    for (std::uint32_t i = 0; i < length; ++i) {
      BlockStoredEvent stored;
      stored.block_hashes.push_back(make_key(i + 1).hash);
      pool.append_event(std::move(stored));
      pool.publish(blocks[i], make_key(i + 1), 4 * (std::int64_t{i} + 1));
    }
    const std::vector<KVEvent> events = pool.take_events();
    ASSERT_EQ(events.size(), length);  // one a block, each with its own hash only
    for (std::uint32_t i = 0; i < length; ++i) {
      ASSERT_EQ(std::get<BlockStoredEvent>(events[i]).block_hashes, std::vector{make_key(i + 1).hash});
    }
    EXPECT_EQ(pool.stats().published_keys, length);
  }
}

TEST_F(PoolField, F101_BlocksOfAnEndedRequestWaitForTheStepInFlight) {
  BlockPool pool(pool_of(8));
  const auto a = allocate(pool, 3);
  publish(pool, a, 1);
  pool.advance_fence(1);  // step 1 has been processed, step 2 is in flight
  EXPECT_TRUE(pool.free_blocks(std::vector<BlockId>(a.rbegin(), a.rend()), 2));
  EXPECT_EQ(pool.counts().fenced, 3U);
  EXPECT_EQ(pool.num_free_blocks(), 5U);
  std::vector<BlockId> b(8);
  EXPECT_FALSE(pool.get_new_blocks(b));  // all that is left and what A had
  pool.advance_fence(2);
  EXPECT_EQ(pool.num_free_blocks(), 8U);
  ASSERT_TRUE(pool.get_new_blocks(b));
  EXPECT_TRUE(pool.free_blocks(b, 2));  // no step in flight: at once
  EXPECT_EQ(pool.counts().fenced, 0U);
  expect_at_rest(pool);
}

TEST_F(PoolField, F102_ACancelledPromiseMakesRoomAtOnce) {
  BlockPool pool(pool_of(8));
  std::vector<Reservation> deferred;
  for (int i = 0; i < 4; ++i) {
    auto reservation = pool.try_reserve(2);
    ASSERT_TRUE(reservation.has_value());
    deferred.push_back(std::move(*reservation));
  }
  EXPECT_FALSE(pool.try_reserve(1).has_value());
  while (!deferred.empty()) {
    deferred.pop_back();
    const auto fifth = pool.try_reserve(2);
    EXPECT_TRUE(fifth.has_value());
  }
  expect_at_rest(pool);
}

}  // namespace
}  // namespace kvpool::testing
