// Meetings of two calls that need a set-up of their own: each under every schedule with a few preemptions.
#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <memory>
#include <vector>

#include "pool/basic_block_pool.hpp"
#include "tests/model/atomic.hpp"
#include "tests/model/explore.hpp"

namespace kvpool::model {
namespace {

struct OnePlace {
  [[nodiscard]] static std::uint32_t hint() noexcept { return 0; }
};
using Pool = BasicBlockPool<Atomic, OnePlace>;
using Blocks = std::vector<BlockId>;

constexpr int kPreemptions = 3;
constexpr std::uint64_t kAll = 10'000'000;

BlockKey key_of(std::uint8_t name) {
  BlockKey key;
  key.hash.size = 16;
  key.hash.bytes[0] = name;
  return key;
}

BlockPoolOptions options_of(std::uint32_t usable_blocks) {
  BlockPoolOptions options;
  options.num_blocks = usable_blocks + 1;
  options.num_shards = 1;
  options.ring_slots = 8;
  options.index_buckets = 2;
  return options;
}

Blocks allocate(Pool& pool, std::size_t count) {
  Blocks blocks(count);
  require(pool.get_new_blocks(blocks), "blocks are missing");
  return blocks;
}

void expect_sound(const Pool& pool) {
  const Status sound = pool.check_invariants();
  require(sound.ok(), sound.ok() ? "" : sound.error().message);
}

void explore(const CaseFactory& factory) {
  const Exploration all = explore_reduced(factory, kPreemptions, kAll);
  EXPECT_TRUE(all.ok) << all.failure;
  EXPECT_TRUE(all.complete);
  std::cout << all.schedules << " schedules, longest run " << all.longest_run << " steps\n";
}

TEST(PoolCorners, OfTwoBlocksUnderOneKeyAtMostOneStaysWhereDuplicatesAreSkipped) {
  explore([] {
    BlockPoolOptions skip = options_of(2);
    skip.duplicates = DuplicatePolicy::skip;
    auto pool = std::make_shared<Pool>(skip);
    const Blocks blocks = allocate(*pool, 2);
    auto published = std::make_shared<int>(0);
    Case test;
    for (const BlockId block : blocks) {
      test.threads.push_back([pool, published, block] { *published += pool->publish(block, key_of(1), 4) ? 1 : 0; });
    }
    test.at_end = [pool, published, blocks] {
      const int carriers =
          (pool->has_key(blocks[0], key_of(1)) ? 1 : 0) + (pool->has_key(blocks[1], key_of(1)) ? 1 : 0);
      require(carriers <= 1, "two copies have stayed");
      require(carriers == *published, "a publication was reported that has not stayed");
      expect_sound(*pool);
    };
    return test;
  });
}

TEST(PoolCorners, AMovedKeyHasABlockAtEveryMoment) {
  explore([] {
    auto pool = std::make_shared<Pool>(options_of(3));
    const Blocks blocks = allocate(*pool, 3);
    require(pool->publish(blocks[0], key_of(1), 4), "set-up");
    Case test;
    test.threads.push_back([pool, blocks] { pool->move_block_hashes(blocks[0], blocks[1]); });
    test.threads.push_back([pool, blocks] { static_cast<void>(pool->publish(blocks[2], key_of(2), 4)); });
    test.after_each_step = [pool] { require(pool->find(key_of(1)).has_value(), "nobody answers for the moved key"); };
    test.at_end = [pool] { expect_sound(*pool); };
    return test;
  });
}

TEST(PoolCorners, WhatAFullRingSendsToTheStackHasNoKeysLeft) {
  explore([] {
    BlockPoolOptions tiny = options_of(10);
    tiny.ring_slots = 2;
    auto pool = std::make_shared<Pool>(tiny);
    const Blocks blocks = allocate(*pool, 10);
    for (std::uint8_t i = 0; i < 8; ++i) require(pool->publish(blocks[i], key_of(i), 4), "set-up");
    require(pool->free_blocks(std::span(blocks).first(6)), "set-up");
    require(pool->free_blocks(std::span(blocks).last(1)), "set-up");  // blank: the first that is handed out
    const std::uint64_t dropped = pool->stats().ring_full;
    Case test;
    test.threads.push_back(
        [pool, blocks] { require(pool->free_blocks(std::span(blocks).subspan(6, 2)), "a release was refused"); });
    test.threads.push_back([pool] {
      const Blocks mine = allocate(*pool, 1);
      require(pool->publish(mine[0], key_of(20), 4), "an owner's publish was refused");
      require(pool->find(key_of(20)).has_value(), "a published key is not found");
    });
    test.at_end = [pool, dropped] {
      require(pool->stats().ring_full > dropped, "no ring was full: the case shows nothing");
      require(pool->find(key_of(20)).has_value(), "a published key has gone");
      expect_sound(*pool);
    };
    return test;
  });
}

TEST(PoolCorners, TheFirstFenceEverHoldsForTheLastHolderToo) {
  explore([] {
    auto pool = std::make_shared<Pool>(options_of(2));
    const Blocks block = allocate(*pool, 1);
    require(pool->touch(block), "set-up");
    Case test;
    test.threads.push_back([pool, block] { require(pool->free_blocks(block, 5), "a release was refused"); });
    test.threads.push_back([pool, block] { require(pool->free_blocks(block), "a release was refused"); });
    test.at_end = [pool] {
      require(pool->num_free_blocks() == 1 && pool->counts().fenced == 1, "a block does not wait for its fence");
      pool->advance_fence(5);
      require(pool->num_free_blocks() == 2, "a block whose fence has passed is not free");
      expect_sound(*pool);
    };
    return test;
  });
}

TEST(PoolCorners, TwoFirstFencesShareOneQueue) {
  explore([] {
    auto pool = std::make_shared<Pool>(options_of(2));
    const Blocks blocks = allocate(*pool, 2);
    Case test;
    for (std::size_t i = 0; i < 2; ++i) {
      test.threads.push_back([pool, blocks, i] {
        require(pool->free_blocks(std::span(blocks).subspan(i, 1), 5), "a release was refused");
      });
    }
    test.at_end = [pool] {
      pool->advance_fence(5);
      static_cast<void>(allocate(*pool, 2));
    };
    return test;
  });
}

TEST(PoolCorners, FurtherKeysOfTwoHoldersEndWithTheirBlock) {
  explore([] {
    auto pool = std::make_shared<Pool>(options_of(2));
    const Blocks block = allocate(*pool, 1);
    require(pool->publish(block[0], key_of(1), 4), "set-up");
    Case test;
    for (const std::uint8_t name : {std::uint8_t{2}, std::uint8_t{3}}) {
      test.threads.push_back(
          [pool, block, name] { require(pool->publish(block[0], key_of(name), 4), "a further key was refused"); });
    }
    test.at_end = [pool, block] {
      require(pool->num_cached_keys() == 3, "a further key is missing");
      require(pool->unpublish(block[0]), "there was nothing to end");
      require(!pool->find(key_of(2)) && !pool->find(key_of(3)), "a further key has outlived its block's content");
      expect_sound(*pool);
    };
    return test;
  });
}

TEST(IndexCorners, WhoFindsNoSlotLeavesNothingAccountedFor) {
  explore([] {
    using Index = PrefixIndex<Atomic>;
    auto index = std::make_shared<Index>(2);
    constexpr std::uint32_t kSlots = 2 * Index::kSlotsPerBucket;
    for (std::uint32_t value = 0; value + 1 < kSlots; ++value)
      require(index->insert(5, value) != Index::kNoPosition, "");
    auto entered = std::make_shared<int>(0);
    Case test;
    for (const std::uint32_t value : {kSlots, kSlots + 1}) {
      test.threads.push_back([index, entered, value] {
        if (index->insert(5, value) != Index::kNoPosition) ++*entered;
      });
    }
    test.at_end = [index, entered] {
      require(*entered == 1, "one slot was left");
      require(index->num_entries() == kSlots, "an entry was lost");
      require(index->num_overflowed() == Index::kSlotsPerBucket, "more entries are accounted for than there are");
    };
    return test;
  });
}

}  // namespace
}  // namespace kvpool::model
