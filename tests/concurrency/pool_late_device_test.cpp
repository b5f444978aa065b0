// A device that executes the writes of a step long after the host has gone on: with fences none of them lands in a
// block that has another owner by then. The same device convicts a host that names the fence of the step before.
#include <mutex>

#include "kvpool/pool/locked_block_pool.hpp"
#include "tests/concurrency/pool_workload.hpp"

namespace kvpool::testing {
namespace {

/// Threads submit steps; the device executes them in order, `lag` steps late, and tells the pool. It has a lock of its
/// own, the pool has none.
template <class Pool>
class LateDevice {
 public:
  LateDevice(Pool& pool, std::size_t lag) : pool_(pool), lag_(lag), owners_(pool.num_blocks()) {}

  /// The caller owns `blocks` from now on.
  void own(const std::vector<BlockId>& blocks, std::uint64_t owner) {
    for (const BlockId block : blocks) owners_[block.value()].store(owner, std::memory_order_release);
  }
  /// A step that writes to the blocks of `owner`. Answers its number.
  std::uint64_t submit(const std::vector<BlockId>& blocks, std::uint64_t owner) {
    const std::lock_guard lock(mutex_);
    steps_.push_back({blocks, owner});
    return ++submitted_;
  }
  /// Executes what is due.
  void run(bool everything = false) {
    const std::lock_guard lock(mutex_);
    while (!steps_.empty() && (everything || steps_.size() > lag_)) {
      const Step step = std::move(steps_.front());
      steps_.pop_front();
      for (const BlockId block : step.blocks) {
        ++writes_;
        // The write itself: the block must still be that owner's.
        if (owners_[block.value()].load(std::memory_order_acquire) != step.owner) ++foreign_writes_;
      }
      pool_.advance_fence(++executed_);
    }
  }
  [[nodiscard]] std::uint64_t writes() const { return writes_; }
  [[nodiscard]] std::uint64_t foreign_writes() const { return foreign_writes_; }

 private:
  struct Step {
    std::vector<BlockId> blocks;
    std::uint64_t owner;
  };
  Pool& pool_;
  std::size_t lag_;
  std::vector<std::atomic<std::uint64_t>> owners_;
  std::mutex mutex_;
  std::deque<Step> steps_;
  std::uint64_t submitted_ = 0;
  std::uint64_t executed_ = 0;
  std::uint64_t writes_ = 0;
  std::uint64_t foreign_writes_ = 0;
};

struct LateWrites {
  std::uint64_t all = 0;
  std::uint64_t foreign = 0;
};

/// Requests live for one step and are freed while it is in flight, under the fence of that step minus `early`.
template <class Pool>
LateWrites serve(std::uint32_t num_threads, std::uint64_t early) {
  BlockPoolOptions options;
  options.num_blocks = 25;
  options.num_shards = 2;
  Pool pool(options);
  LateDevice<Pool> device(pool, 4);
  std::vector<std::thread> threads;
  for (std::uint64_t number = 0; number < num_threads; ++number) {
    threads.emplace_back([&, number] {
      std::mt19937_64 random(number);
      for (std::uint64_t i = 0; i < scaled(3'000, 300'000); ++i) {
        std::vector<BlockId> blocks(1 + random() % 4);
        if (pool.get_new_blocks(blocks)) {
          const std::uint64_t owner = (number + 1) << 32U | i;
          device.own(blocks, owner);
          if (random() % 2 == 0) pool.publish(blocks[0], make_key(1 + random() % 16), 1);
          const std::uint64_t step = device.submit(blocks, owner);
          EXPECT_TRUE(pool.free_blocks(blocks, step - std::min(step, early)));
        }
        if (i % 2 == 0) device.run();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  device.run(true);
  expect_at_rest(pool);
  return {device.writes(), device.foreign_writes()};
}

template <class Pool>
class PoolAndLateDevice : public ::testing::Test {};

using Pools = ::testing::Types<BlockPool, LockedBlockPool>;
TYPED_TEST_SUITE(PoolAndLateDevice, Pools);

TYPED_TEST(PoolAndLateDevice, ABlockWaitsForTheHighestFenceWhoeverNamedIt) {
  for (const auto& [first, second] : {std::pair{9U, 5U}, std::pair{5U, 9U}, std::pair{9U, 0U}}) {
    BlockPoolOptions options;
    options.num_blocks = 2;
    TypeParam pool(options);
    std::vector<BlockId> block(1);
    ASSERT_TRUE(pool.get_new_blocks(block));
    ASSERT_TRUE(pool.touch(block));
    EXPECT_TRUE(pool.free_blocks(block, first));
    EXPECT_TRUE(second > 0 ? pool.free_blocks(block, second) : pool.free_blocks(block));
    pool.advance_fence(8);
    EXPECT_FALSE(pool.get_new_blocks(block));
    pool.advance_fence(9);
    EXPECT_TRUE(pool.get_new_blocks(block));
    EXPECT_TRUE(pool.free_blocks(block));
    expect_at_rest(pool);
  }
}

TYPED_TEST(PoolAndLateDevice, NoLateWriteLandsInAnothersBlock) {
  for (const std::uint32_t threads : {1U, 3U}) {
    const LateWrites writes = serve<TypeParam>(threads, 0);
    EXPECT_EQ(writes.foreign, 0U);
    EXPECT_GT(writes.all, 1'000U);
  }
}

TYPED_TEST(PoolAndLateDevice, AFenceNamedOneStepTooEarlyIsSeen) {
  for (const std::uint32_t threads : {1U, 3U}) EXPECT_GT(serve<TypeParam>(threads, 1).foreign, 0U);
}

}  // namespace
}  // namespace kvpool::testing
