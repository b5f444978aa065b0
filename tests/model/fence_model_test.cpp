// A block that is given back while another holder pins it and gives it back under a later fence: it waits for that one,
// whatever the first holder had decided before.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

#include "pool/basic_block_pool.hpp"
#include "tests/model/atomic.hpp"
#include "tests/model/explore.hpp"

namespace kvpool::model {
namespace {

struct ByThread {
  [[nodiscard]] static std::uint32_t hint() noexcept { return static_cast<std::uint32_t>(Scheduler::current_thread()); }
};

struct FenceWorld {
  explicit FenceWorld(FreeOrder order)
      : pool({.num_blocks = 4, .free_order = order, .num_shards = 1, .ring_slots = 8, .index_buckets = 2}) {
    key.hash.size = 16;
    key.hash.bytes[0] = 1;
  }
  BasicBlockPool<Atomic, ByThread> pool;
  BlockKey key;
  std::array<BlockId, 1> block{};
  bool late = false;  ///< somebody gave the block back under fence 9
};

/// `first`: the fence of the first holder, 0: none; `passed`: what has passed before.
Case two_holders(FreeOrder order, bool with_content, std::uint64_t first, std::uint64_t passed) {
  auto world = std::make_shared<FenceWorld>(order);
  require(world->pool.get_new_blocks(world->block), "set-up");
  if (with_content) require(world->pool.publish(world->block[0], world->key, 4), "set-up");
  if (passed > 0) world->pool.advance_fence(passed);
  const BlockHandle handle = world->pool.handle(world->block[0]);
  Case test;
  test.threads.push_back([world, first] {
    require(first > 0 ? world->pool.free_blocks(world->block, first) : world->pool.free_blocks(world->block),
            "refused");
  });
  test.threads.push_back([world, handle, with_content] {
    std::uint32_t units = world->pool.try_reserve(1) ? 1 : 0;
    const bool held = with_content ? world->pool.pin(handle, world->key, units) : world->pool.touch(world->block);
    world->pool.give_back(units);
    if (!held) return;
    require(world->pool.free_blocks(world->block, 9), "refused");
    world->late = true;
  });
  test.at_end = [world] {
    std::array<BlockId, 3> all{};
    require(world->pool.get_new_blocks(all) == !world->late, "a block was handed out before its fence");
    if (!world->late) return;
    world->pool.advance_fence(9);
    require(world->pool.get_new_blocks(all), "a block was lost");
  };
  return test;
}

TEST(FenceModel, ABlockWaitsForTheFenceThatWasNamedWhileItWasGivenBack) {
  std::uint64_t schedules = 0;
  for (const FreeOrder order : {FreeOrder::split, FreeOrder::append}) {
    for (const bool with_content : {true, false}) {
      for (const auto& [first, passed] : {std::pair{5U, 5U}, std::pair{0U, 5U}, std::pair{0U, 0U}, std::pair{5U, 0U}}) {
        const Exploration found = explore_reduced(
            [&, f = first, p = passed] { return two_holders(order, with_content, f, p); }, 3, ~std::uint64_t{0});
        EXPECT_TRUE(found.ok) << found.failure;
        EXPECT_TRUE(found.ok && found.complete);
        schedules += found.schedules;
      }
    }
  }
  std::printf("%llu schedules\n", static_cast<unsigned long long>(schedules));
}

}  // namespace
}  // namespace kvpool::model
