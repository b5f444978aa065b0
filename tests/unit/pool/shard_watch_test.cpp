// Threads that move between shards, played by one that says where it is.
#include "pool/shard_watch.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "pool/basic_block_pool.hpp"

namespace kvpool {
namespace {

struct Declared {
  static inline std::uint32_t shard = 0;
  static std::uint32_t hint() noexcept { return shard; }
};

class ShardWatchTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kUsable = 256;

  static BlockPoolOptions options(std::uint32_t shards) {
    BlockPoolOptions options;
    options.num_blocks = kUsable + 1;
    options.num_shards = shards;
    return options;
  }
  static BlockKey key_of(std::uint64_t number) {
    BlockKey key;
    key.hash.size = BlockHash::kMaxBytes;
    std::memcpy(key.hash.bytes.data(), &number, sizeof number);
    return key;
  }
  /// New content that nobody references, in place of what the pool thinks is the oldest.
  void store(BasicBlockPool<std::atomic, Declared>& pool, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      std::array<BlockId, 1> block{};
      ASSERT_TRUE(pool.get_new_blocks(block));
      pool.publish(block[0], key_of(next_++), 1);
      pool.free_blocks(block);
    }
  }
  /// How many of the youngest contents are still there, up to the first that is not.
  std::uint64_t youngest_kept(const BasicBlockPool<std::atomic, Declared>& pool) const {
    std::uint64_t kept = 0;
    while (kept < next_ && pool.find(key_of(next_ - 1 - kept))) ++kept;
    return kept;
  }

  std::uint64_t next_ = 0;
};

TEST_F(ShardWatchTest, WhatAThreadLeftBehindIsEvictedBeforeWhatItMadeSince) {
  for (const std::uint32_t shards : {2U, 5U}) {
    BasicBlockPool<std::atomic, Declared> pool(options(shards));
    for (const std::uint32_t shard : {0U, 1U, 0U}) {
      Declared::shard = shard;
      store(pool, 60 * kUsable);
      EXPECT_EQ(youngest_kept(pool), kUsable) << shards << " shards, on " << shard;
    }
    EXPECT_TRUE(pool.check_invariants().ok());
  }
}

TEST_F(ShardWatchTest, WhatIsPutIntoAnIdleShardStaysWhenTheRestIsUsedUp) {
  BasicBlockPool<std::atomic, Declared> pool(options(2));
  Declared::shard = 1;
  store(pool, kUsable / 2);
  Declared::shard = 0;
  while (pool.find(key_of(0))) store(pool, 1);  // the other shard's oldest: it counts as idle by now
  store(pool, 9);
  EXPECT_FALSE(pool.find(key_of(9)));
  EXPECT_TRUE(pool.find(key_of(10)));
  Declared::shard = 1;
  store(pool, 3);
  const std::uint64_t young = next_ - 1;
  Declared::shard = 0;
  store(pool, kUsable / 2);
  EXPECT_FALSE(pool.find(key_of(kUsable / 2 - 1)));  // the youngest that was there when the shard counted as idle
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(pool.find(key_of(young - i)));
}

TEST_F(ShardWatchTest, AShardThatIsInUseKeepsItsContent) {
  BasicBlockPool<std::atomic, Declared> pool(options(2));
  const auto by_turns = [&] {
    for (std::uint32_t i = 0; i < 8 * kUsable; ++i) {
      Declared::shard = i % 2;
      store(pool, 1);
    }
  };
  by_turns();
  const std::uint64_t stolen = pool.stats().stolen_blocks;
  by_turns();
  EXPECT_EQ(pool.stats().stolen_blocks, stolen);
}

}  // namespace
}  // namespace kvpool
