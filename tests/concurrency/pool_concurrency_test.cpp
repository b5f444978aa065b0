// Many threads on a small pool. Each case fails when the claim it is named after is broken.
#include <map>

#include "kvpool/pool/locked_block_pool.hpp"
#include "tests/concurrency/pool_workload.hpp"

namespace kvpool::testing {
namespace {

template <class Pool>
class PoolUnderThreads : public ::testing::Test {
 protected:
  static BlockPoolOptions small_pool(std::uint32_t shards, std::uint32_t blocks = 65) {
    BlockPoolOptions options;
    options.num_blocks = blocks;
    options.num_shards = shards;
    return options;
  }
  static void expect_clean(const WorkloadResult& result) {
    EXPECT_EQ(result.wrong_content, 0U);
    EXPECT_EQ(result.counts_out_of_range, 0U);
    EXPECT_GT(result.hits, 0U);
    EXPECT_GT(result.allocated, 0U);
  }
};

using Pools = ::testing::Types<BlockPool, LockedBlockPool>;
TYPED_TEST_SUITE(PoolUnderThreads, Pools);

TYPED_TEST(PoolUnderThreads, PinnedContentNeverChangesAndNoBlockIsLost) {
  for (const std::uint32_t shards : {1U, 2U, 3U}) {
    for (const FreeOrder order : {FreeOrder::split, FreeOrder::append}) {
      BlockPoolOptions options = this->small_pool(shards);
      options.free_order = order;
      TypeParam pool(options);
      WorkloadOptions workload;
      workload.requests_per_thread = scaled(1'000, 200'000);
      workload.seed = shards;
      this->expect_clean(run_workload(pool, workload));
      expect_at_rest(pool);
    }
  }
}

TYPED_TEST(PoolUnderThreads, EvictionBesideReadersTakesNoReferencedBlock) {
  for (const std::uint32_t shards : {1U, 2U}) {
    TypeParam pool(this->small_pool(shards));
    WorkloadOptions workload;
    workload.requests_per_thread = scaled(1'500, 200'000);
    const auto evictor = [&pool](const std::atomic<bool>& stop) {
      std::mt19937_64 random(7);
      while (!stop.load(std::memory_order_relaxed)) {
        const std::array<BlockId, 2> victims{BlockId{static_cast<std::uint32_t>(random() % 65)},
                                             BlockId{static_cast<std::uint32_t>(random() % 65)}};
        EXPECT_TRUE(pool.evict_blocks(victims));
        std::this_thread::yield();
      }
    };
    this->expect_clean(run_workload(pool, workload, evictor));
    expect_at_rest(pool);
  }
}

TYPED_TEST(PoolUnderThreads, TinyRingsLoseContentButNoBlock) {
  BlockPoolOptions options = this->small_pool(2, 33);
  options.ring_slots = 4;
  TypeParam pool(options);
  WorkloadOptions workload;
  workload.chains = 16;
  workload.requests_per_thread = scaled(2'000, 200'000);
  EXPECT_EQ(run_workload(pool, workload).wrong_content, 0U);
  expect_at_rest(pool);
}

TYPED_TEST(PoolUnderThreads, ReplayedEventsGiveTheIndex) {
  for (const RemovalEvents removals : {RemovalEvents::each_copy}) {
    BlockPoolOptions options = this->small_pool(2);
    options.enable_events = true;
    options.removal_events = removals;
    TypeParam pool(options);
    WorkloadOptions workload;
    workload.announce = true;
    workload.requests_per_thread = scaled(1'000, 100'000);
    std::vector<KVEvent> events;
    const auto consumer = [&](const std::atomic<bool>& stop) {
      while (!stop.load(std::memory_order_relaxed)) {
        for (KVEvent& event : pool.take_events()) events.push_back(std::move(event));
        std::this_thread::yield();
      }
    };
    this->expect_clean(run_workload(pool, workload, consumer));
    for (KVEvent& event : pool.take_events()) events.push_back(std::move(event));
    std::map<BlockHash, int> replayed;
    for (const KVEvent& event : events) {
      if (const auto* stored = std::get_if<BlockStoredEvent>(&event)) ++replayed[stored->block_hashes.at(0)];
      if (const auto* removed = std::get_if<BlockRemovedEvent>(&event)) {
        // A removal never comes before the store it ends.
        ASSERT_GE(--replayed[removed->block_hashes.at(0)], 0);
      }
    }
    std::size_t present = 0;
    for (const auto& [hash, count] : replayed) {
      present += count > 0 ? 1U : 0U;
      EXPECT_EQ(pool.find(BlockKey{hash, GroupId{0}}).has_value(), count > 0);
    }
    EXPECT_EQ(present, pool.num_cached_keys());
    expect_at_rest(pool);
  }
}

TYPED_TEST(PoolUnderThreads, AllocationIsAllOrNothing) {
  BlockPoolOptions options = this->small_pool(2, 11);
  TypeParam pool(options);
  std::atomic<int> holders{0};
  std::atomic<int> broken{0};
  std::array<std::uint64_t, 2> got{};
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < 2; ++number) {
    threads.emplace_back([&, number] {
      for (std::size_t i = 0; i < scaled(20'000, 2'000'000); ++i) {
        std::vector<BlockId> blocks(6);  // 6 of 10: never two at a time
        if (!pool.get_new_blocks(blocks)) continue;
        if (holders.fetch_add(1, std::memory_order_acq_rel) != 0) broken.fetch_add(1, std::memory_order_relaxed);
        ++got[number];
        holders.fetch_sub(1, std::memory_order_acq_rel);
        pool.free_blocks(blocks);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(broken.load(), 0);
  EXPECT_GT(got[0] + got[1], 0U);
  expect_at_rest(pool);
}

TYPED_TEST(PoolUnderThreads, CapacityIsNotRefusedWhileItIsThere) {
  // Four threads of 3 blocks in a pool of 12: a reservation that does not touch cached blocks never fails.
  BlockPoolOptions options = this->small_pool(2, 13);
  options.enable_caching = false;
  TypeParam pool(options);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < scaled(10'000, 1'000'000); ++i) {
        std::array<BlockId, 3> blocks;
        if (!pool.get_new_blocks(blocks)) {
          refused.fetch_add(1, std::memory_order_relaxed);
          continue;
        }
        pool.free_blocks(blocks);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(refused.load(), 0);
  expect_at_rest(pool);
}

TYPED_TEST(PoolUnderThreads, NoWriteOfALateDeviceHitsAnotherOwner) {
  BlockPoolOptions options = this->small_pool(2, 33);
  TypeParam pool(options);
  Contents contents(options.num_blocks);
  constexpr std::uint64_t kNever = ~std::uint64_t{0} >> 1U;
  // Each thread keeps blocks for one round and frees them under a fence; its "device" writes to them once more in
  // the round after, when their request is gone.
  std::atomic<std::uint64_t> step{1};
  std::atomic<int> overwritten{0};
  std::vector<std::thread> threads;
  std::array<std::atomic<std::uint64_t>, 3> done{};
  for (std::uint64_t number = 0; number < done.size(); ++number) {
    threads.emplace_back([&, number] {
      std::vector<BlockId> live;
      std::vector<BlockId> late;
      for (std::uint64_t i = 1; i <= scaled(2'000, 100'000); ++i) {
        const std::uint64_t now = step.load(std::memory_order_acquire);
        const std::uint64_t pattern = (number << 32U) | i;
        std::vector<BlockId> fresh(4);
        if (!pool.get_new_blocks(fresh)) fresh.clear();
        for (const BlockId block : fresh) contents.write(block, pattern);
        std::this_thread::yield();
        for (const BlockId block : late) contents.write(block, ~pattern);
        for (const BlockId block : live) {
          if (!contents.holds(block, pattern - 1)) overwritten.fetch_add(1, std::memory_order_relaxed);
        }
        pool.free_blocks(live, now + 1);
        late = std::exchange(live, fresh);
        // Everything this thread freed up to fence `now` has been written for the last time.
        done[number].store(now, std::memory_order_release);
        std::uint64_t least = now;
        for (auto& other : done) least = std::min(least, other.load(std::memory_order_acquire));
        pool.advance_fence(least);
        if (number == 0) step.fetch_add(1, std::memory_order_acq_rel);
      }
      pool.free_blocks(live);
      for (const BlockId block : late) contents.write(block, 0);
      done[number].store(kNever, std::memory_order_release);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(overwritten.load(), 0);
  pool.advance_fence(kNever);
  std::vector<BlockId> all(32);
  ASSERT_TRUE(pool.get_new_blocks(all));
  pool.free_blocks(all);
  expect_at_rest(pool);
}

TYPED_TEST(PoolUnderThreads, SharedBlocksTakeAndLoseSecondKeysTogether) {
  TypeParam pool(this->small_pool(1, 9));
  std::array<BlockId, 2> shared;
  ASSERT_TRUE(pool.get_new_blocks(shared));
  // Referenced twice while three threads write: first keys compete for the right to write.
  ASSERT_TRUE(pool.touch(shared));
  std::vector<std::thread> threads;
  for (std::uint64_t number = 0; number < 3; ++number) {
    threads.emplace_back([&, number] {
      std::mt19937_64 random(number);
      for (std::size_t i = 0; i < scaled(3'000, 300'000); ++i) {
        const BlockId block = shared[random() % 2];
        const BlockKey key = make_key(1 + random() % 6, static_cast<std::uint32_t>(block.value()));
        if (random() % 4 == 0) {
          pool.unpublish(block);
        } else {
          pool.publish(block, key, 1);
        }
        const auto found = pool.find(key);
        if (found) {
          EXPECT_EQ(found->id, block);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  pool.free_blocks(shared);
  pool.free_blocks(shared);
  expect_at_rest(pool);
  EXPECT_TRUE(pool.evict_blocks(shared));
  EXPECT_EQ(pool.num_cached_keys(), 0U);
  expect_at_rest(pool);
}

}  // namespace
}  // namespace kvpool::testing
