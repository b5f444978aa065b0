// Rules of chunked local attention.
#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

TEST(ChunkedLocal, BlocksBeforeTheCurrentChunkCountWithoutALookUp) {
  Engine engine({.num_blocks = 40, .groups = {chunked(4, 8)}});
  Running warm = engine.start(tokens(0, 32));
  warm.request.num_in_flight_tokens = 32;
  engine.step(warm, 32);
  engine->free(warm.sequence);
  const Request fifteen = engine.request(tokens(0, 16));  // looks at 15 tokens
  PrefixHit hit = engine->get_computed_blocks(fifteen);
  EXPECT_EQ(hit.num_computed_tokens, 12);
  ASSERT_EQ(hit.blocks.groups[0].size(), 3U);
  EXPECT_TRUE(hit.blocks.groups[0][0].is_null());
  EXPECT_TRUE(hit.blocks.groups[0][1].is_null());
  EXPECT_FALSE(hit.blocks.groups[0][2].is_null());

  const Request unknown = engine.request(tokens(5000, 17));  // 16 tokens: whole chunks
  hit = engine->get_computed_blocks(unknown);
  EXPECT_EQ(hit.num_computed_tokens, 16);
  EXPECT_EQ(hit.blocks.groups[0].size(), 4U);
  EXPECT_TRUE(hit.blocks.groups[0][3].is_null());
}

TEST(ChunkedLocal, FinishedChunksAreReleasedWhenTheNextOneStarts) {
  Engine engine({.num_blocks = 40, .groups = {chunked(4, 8)}});
  const std::vector<std::pair<std::int64_t, int>> released{{7, 0}, {8, 2}, {15, 2}, {16, 4}, {17, 4}};
  Running running = engine.start(tokens(0, 20));
  running.request.num_in_flight_tokens = 100;
  engine.step(running, 20);
  for (const auto& [processed, expected] : released) {
    engine->remove_skipped_blocks(running.request, running.sequence, processed);
    int nulls = 0;
    for (const std::uint32_t id : engine.table(running)) nulls += id == 0 ? 1 : 0;
    EXPECT_EQ(nulls, expected) << processed;
  }
}

TEST(ChunkedLocal, HashingNeedsNoPhysicalPredecessor) {
  Engine engine({.num_blocks = 40, .groups = {full(4), chunked(4, 8)}});
  Running running = engine.start(tokens(0, 16));
  engine.prefill(running);
  for (TokenId token = 16; token < 21; ++token) engine.decode(running, token);
  EXPECT_EQ(engine.table(running, 1)[3], 0U);
  const std::uint32_t fifth = engine.table(running, 1)[4];
  ASSERT_TRUE(engine.pool().primary_key(BlockId{fifth}).has_value());
  EXPECT_EQ(engine.pool().primary_key(BlockId{fifth})->hash, running.request.block_hashes()[4]);
}

TEST(ChunkedLocal, HitIsAlignedWithLargerBlocksOfOthers) {
  Engine engine({.num_blocks = 60, .groups = {full(16), chunked(4, 8)}, .hash_block_size = 4});
  engine.warm(tokens(0, 44));
  const Request next = engine.request(tokens(0, 60));
  const PrefixHit hit = engine->get_computed_blocks(next);
  EXPECT_EQ(hit.num_computed_tokens, 32);
  EXPECT_EQ(hit.blocks.groups[0].size(), 2U);
  EXPECT_EQ(hit.blocks.groups[1].size(), 8U);
}

}  // namespace
}  // namespace kvpool::test
