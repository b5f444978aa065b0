// Rings with fewer slots than there are blocks: what no slot is left for loses its content, and everything that is told
// about the pool says so.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "kvpool/pool/block_pool.hpp"

namespace kvpool {
namespace {

constexpr std::uint32_t kUsable = 30;

BlockPoolOptions tiny_rings(FreeOrder order = FreeOrder::split) {
  BlockPoolOptions options;
  options.num_blocks = kUsable + 1;
  options.num_shards = 1;
  options.ring_slots = 2;
  options.free_order = order;
  options.enable_events = true;
  return options;
}

std::vector<BlockHash> chain_of(std::size_t length) {
  std::vector<BlockHash> chain(length);
  for (std::size_t i = 0; i < length; ++i) {
    chain[i].size = 16;
    chain[i].bytes[3] = static_cast<std::uint8_t>(i + 1);
  }
  return chain;
}

class FullRing : public ::testing::Test {
 protected:
  explicit FullRing(FreeOrder order = FreeOrder::split) : pool_(tiny_rings(order)) {
    EXPECT_TRUE(pool_.get_new_blocks(blocks_));
  }
  void publish_all() { ASSERT_EQ(pool_.publish_chain(blocks_, {chain_, 1}, GroupId{0}, 0, 4), kUsable); }
  /// Each key is found, or its removal was announced, and the counts are those of the blocks.
  void expect_agreement() {
    std::uint64_t found = 0;
    for (const BlockHash& hash : chain_) found += pool_.find({hash, GroupId{0}}) ? 1U : 0U;
    EXPECT_GT(pool_.stats().ring_full, 0U);
    EXPECT_EQ(pool_.take_events().size(), kUsable - found);
    EXPECT_EQ(pool_.counts().cached, found);
    EXPECT_EQ(found + pool_.stats().ring_full, kUsable);
    EXPECT_EQ(pool_.num_free_blocks(), kUsable);
    const Status sound = pool_.check_invariants();
    EXPECT_TRUE(sound.ok()) << sound.error().message;
  }

  BlockPool pool_;
  std::array<BlockId, kUsable> blocks_;
  std::vector<BlockHash> chain_ = chain_of(kUsable);
};

TEST_F(FullRing, ContentThatAReleaseLosesIsAnnouncedAndCounted) {
  publish_all();
  EXPECT_TRUE(pool_.free_blocks(blocks_));
  expect_agreement();
}

TEST_F(FullRing, SoIsContentThatAPassedFenceLoses) {
  publish_all();
  EXPECT_TRUE(pool_.free_blocks(blocks_, 1));
  EXPECT_EQ(pool_.counts().fenced, kUsable);
  EXPECT_EQ(pool_.stats().ring_full, 0U);  // who waits loses nothing, in whatever place
  pool_.advance_fence(1);
  EXPECT_TRUE(pool_.try_reserve(kUsable).has_value());  // needs those that the ring of the waiting had no slot for
  expect_agreement();
}

TEST_F(FullRing, WhoWaitsWithoutASlotIsFoundByAResetToo) {
  publish_all();
  EXPECT_TRUE(pool_.free_blocks(blocks_, 1));
  pool_.advance_fence(1);
  EXPECT_TRUE(pool_.reset_prefix_cache());
  EXPECT_EQ(pool_.counts().cached, 0U);
  EXPECT_EQ(pool_.num_free_blocks(), kUsable);
}

class FullRingOfBlankBlocks : public FullRing {
 protected:
  FullRingOfBlankBlocks() : FullRing(FreeOrder::append) {}
};

TEST_F(FullRingOfBlankBlocks, TakesNoContentWhereThereIsNone) {
  EXPECT_TRUE(pool_.free_blocks(blocks_));
  EXPECT_GT(pool_.stats().ring_full, 0U);
  EXPECT_EQ(pool_.counts().cached, 0U);
  ASSERT_TRUE(pool_.get_new_blocks(blocks_));
  publish_all();
  EXPECT_EQ(pool_.counts().cached, kUsable);
  EXPECT_TRUE(pool_.take_events().empty());
}

}  // namespace
}  // namespace kvpool
