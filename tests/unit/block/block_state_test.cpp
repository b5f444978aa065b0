#include "block/block_state.hpp"

#include <gtest/gtest.h>

#include "block/block_line.hpp"
#include "block/key_words.hpp"

namespace kvpool {
namespace {

constexpr BlockState kFresh{};

TEST(BlockState, StartsBlankAndFree) {
  EXPECT_EQ(kFresh.word(), 0U);
  EXPECT_TRUE(kFresh.blank_free());
  EXPECT_FALSE(kFresh.hashed() || kFresh.in_order() || kFresh.fenced() || kFresh.writing());
}

TEST(BlockState, ClaimCountsTheGenerationAndDropsContent) {
  const BlockState cached = kFresh.claimed().published(77).released_to_order(5);
  ASSERT_TRUE(cached.hashed());
  const BlockState claimed = cached.claimed();
  EXPECT_EQ(claimed.refs(), 1U);
  EXPECT_EQ(claimed.generation(), 2U);
  EXPECT_FALSE(claimed.hashed() || claimed.in_order());
}

TEST(BlockState, GenerationWrapsAfter4096Lives) {
  BlockState state = kFresh;
  for (int life = 0; life < 4096; ++life) state = state.claimed().released_blank();
  EXPECT_EQ(state.generation(), 0U);
  EXPECT_TRUE(state.blank_free());
}

TEST(BlockState, OrderEntrySpeaksOfOneTicketOnly) {
  const BlockState ordered = kFresh.claimed().released_to_order(0xfffffffeU);
  EXPECT_TRUE(ordered.lives_in_order(0xfffffffeU));
  EXPECT_FALSE(ordered.lives_in_order(0xffffffffU));
  EXPECT_FALSE(ordered.lives_in_fence(0xfffffffeU));
  EXPECT_TRUE(ordered.moved_to(9).lives_in_order(9));
  EXPECT_FALSE(ordered.with_reference().lives_in_order(0xfffffffeU));
}

TEST(BlockState, LosingContentKeepsThePlace) {
  const BlockState cached = kFresh.claimed().published(1).released_to_order(40);
  const BlockState lost = cached.unpublished();
  EXPECT_TRUE(lost.lives_in_order(40));
  EXPECT_FALSE(lost.hashed());
}

TEST(BlockState, FenceKeepsContentAndPinTakesItOut) {
  const BlockState waiting = kFresh.claimed().published(1).released_to_fence(8);
  EXPECT_TRUE(waiting.fenced() && waiting.hashed());
  EXPECT_EQ(waiting.refs(), 0U);
  EXPECT_FALSE(waiting.blank_free());
  const BlockState pinned = waiting.with_reference();
  EXPECT_EQ(pinned.refs(), 1U);
  EXPECT_FALSE(pinned.fenced());
  EXPECT_TRUE(waiting.unfenced_to_order(3).lives_in_order(3));
  EXPECT_TRUE(waiting.blanked().blank_free());
  EXPECT_FALSE(waiting.blanked().hashed());
  const BlockState held = waiting.unfenced_to_order(3).held_back(9);
  EXPECT_TRUE(held.fenced() && held.hashed());
  EXPECT_FALSE(held.lives_in_order(3) || held.lives_in_order(9));
  EXPECT_EQ(held.ticket(), 9U);
}

TEST(BlockState, WriterFlagEndsWithPublicationAndRelease) {
  const BlockState writing = kFresh.claimed().with_reference().with_writer();
  EXPECT_TRUE(writing.writing());
  EXPECT_FALSE(writing.published(2).writing());
  EXPECT_FALSE(writing.without_reference().released_blank().writing());
  EXPECT_FALSE(writing.without_reference().released_to_order(7).writing());
  EXPECT_FALSE(writing.without_reference().released_to_fence(7).writing());
}

TEST(BlockState, ReferencesStopBelowTheFlags) {
  BlockState state = kFresh.claimed();
  while (state.refs() < BlockState::kMaxRefs) state = state.with_reference();
  EXPECT_EQ(state.refs(), 65'534U);
  EXPECT_FALSE(state.in_order());
}

TEST(BlockLine, AnOrdinalBeyondItsWidthLeavesTheCoveredTokensAlone) {
  BlockLine<std::atomic> line;
  line.store_key({}, 123, BlockLine<std::atomic>::kMaxOrdinal + 5);
  EXPECT_EQ(line.covered_tokens(), 123U);
  EXPECT_EQ(line.ordinal(), BlockLine<std::atomic>::kMaxOrdinal);
  line.store_key({}, 124, 6);
  EXPECT_EQ(line.covered_tokens(), 124U);
  EXPECT_EQ(line.ordinal(), 6U);
}

TEST(KeyWords, CarryTheWholeKey) {
  BlockKey key;
  std::array<std::uint8_t, 16> digest{};
  for (std::size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<std::uint8_t>(i * 17);
  key.hash = BlockHash::from_digest(digest);
  key.group = GroupId{12'345};
  EXPECT_EQ(KeyWords(key).key(), key);
  BlockKey longer = key;
  longer.hash.size = 32;  // the same bytes, padded: another digest
  EXPECT_NE(KeyWords(key), KeyWords(longer));
  EXPECT_NE(KeyWords(key).mixed(), KeyWords(longer).mixed());
}

}  // namespace
}  // namespace kvpool
