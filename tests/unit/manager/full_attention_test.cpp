// Rules of full attention: prefixes from the left, everything kept, common prefixes.
#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

EngineOptions plain(std::int64_t num_blocks, std::int64_t block_size = 4) {
  return {.num_blocks = num_blocks, .groups = {full(block_size)}};
}

TEST(FullAttention, WorkedTraceOfThreeRequests) {
  Engine engine(plain(9));
  Running r1 = engine.start(tokens(0, 10));
  EXPECT_EQ(engine.prefill(r1), 0);
  EXPECT_EQ(engine.table(r1), (Ids{1, 2, 3}));
  EXPECT_EQ(engine.free_order(), (Ids{4, 5, 6, 7, 8}));
  Running r2 = engine.start(tokens(0, 8) + tokens(50, 3));
  EXPECT_EQ(engine.prefill(r2), 8);
  EXPECT_EQ(engine.table(r2), (Ids{1, 2, 4}));
  EXPECT_EQ(engine.pool().ref_count(BlockId{1}), 2U);
  engine.decode(r1, 10);
  engine.decode(r1, 11);
  EXPECT_TRUE(engine.pool().primary_key(BlockId{3}).has_value());
  engine->free(r1.sequence);
  EXPECT_EQ(engine.free_order(), (Ids{5, 6, 7, 8, 3}));
  engine->free(r2.sequence);
  EXPECT_EQ(engine.free_order(), (Ids{4, 5, 6, 7, 8, 3, 2, 1}));
  Running r3 = engine.start(tokens(0, 8));
  EXPECT_EQ(engine.prefill(r3), 4);
  EXPECT_EQ(engine.table(r3), (Ids{1, 4}));
  EXPECT_EQ(engine.free_order(), (Ids{5, 6, 7, 8, 3, 2}));
  // Block 4 is a second copy; the first one still answers.
  EXPECT_EQ(engine.pool().find(*engine.pool().primary_key(BlockId{4}))->id, BlockId{2});
  engine.expect_sound();
}

TEST(FullAttention, FreeOrderOfTwoRequestsThatShareAPrefix) {
  Engine engine(plain(11, 16));
  Running first = engine.start(tokens(0, 55));
  engine.prefill(first);
  EXPECT_EQ(engine.table(first), (Ids{1, 2, 3, 4}));
  Running second = engine.start(tokens(0, 48) + tokens(900, 7));
  EXPECT_EQ(engine.prefill(second), 48);
  EXPECT_EQ(engine.table(second), (Ids{1, 2, 3, 5}));
  engine->free(first.sequence);
  engine->free(second.sequence);
  EXPECT_EQ(engine.free_order(), (Ids{5, 4, 6, 7, 8, 9, 10, 3, 2, 1}));
}

TEST(FullAttention, FreeOrderOfTheYear2025AppendsEverything) {
  EngineOptions options = plain(11, 16);
  options.manager.free_order = FreeOrder::append;
  Engine engine(options);
  Running first = engine.start(tokens(0, 55));
  engine.prefill(first);
  Running second = engine.start(tokens(0, 48) + tokens(900, 7));
  engine.prefill(second);
  engine->free(first.sequence);
  engine->free(second.sequence);
  EXPECT_EQ(engine.free_order(), (Ids{6, 7, 8, 9, 10, 4, 5, 3, 2, 1}));
}

TEST(FullAttention, HitStopsOneTokenShortAndAtTheFirstMiss) {
  Engine engine(plain(20));
  engine.warm(tokens(0, 12));
  EXPECT_EQ(engine.hit(tokens(0, 12)), 8);
  EXPECT_EQ(engine.hit(tokens(0, 13)), 12);
  EXPECT_EQ(engine.hit(tokens(0, 4) + tokens(77, 1) + tokens(5, 8)), 4);
  EXPECT_EQ(engine.hit(tokens(77, 12)), 0);
}

TEST(FullAttention, DraftModelsRecomputeTheLastMatchedBlock) {
  EngineOptions options = plain(20);
  options.manager.use_eagle = true;
  Engine engine(options);
  engine.warm(tokens(0, 12));
  EXPECT_EQ(engine.hit(tokens(0, 13)), 8);
  EXPECT_EQ(engine.hit(tokens(0, 5)), 0);
}

TEST(FullAttention, LaggingDraftTokensAreNotPublished) {
  EngineOptions options = plain(20);
  options.manager.use_eagle = true;
  options.manager.num_prefill_lookahead = 3;  // the last two tokens of a step may be written again
  Engine engine(options);
  Running running = engine.start(tokens(0, 13));
  engine.step(running, 8);
  EXPECT_TRUE(engine.pool().primary_key(BlockId{1}).has_value());
  EXPECT_FALSE(engine.pool().primary_key(BlockId{2}).has_value()) << "tokens 6 and 7 are not final";
  engine.step(running, 2);
  EXPECT_TRUE(engine.pool().primary_key(BlockId{2}).has_value());
}

TEST(FullAttention, CommonPrefixCountsRequestsThatHoldATable) {
  Engine engine(plain(30));
  Running a = engine.start(tokens(0, 13));
  engine.prefill(a);
  EXPECT_EQ(engine->get_num_common_prefix_blocks(a.sequence), (std::vector<std::int64_t>{4}));
  Running b = engine.start(tokens(0, 8) + tokens(60, 5));
  engine.prefill(b);
  EXPECT_EQ(engine->get_num_common_prefix_blocks(a.sequence), (std::vector<std::int64_t>{2}));
  Running c = engine.start(tokens(500, 5));
  engine.prefill(c);
  EXPECT_EQ(engine->get_num_common_prefix_blocks(a.sequence), (std::vector<std::int64_t>{0}));
  engine->free(c.sequence);
  EXPECT_EQ(engine->get_num_common_prefix_blocks(b.sequence), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(engine->get_num_common_prefix_blocks(c.sequence), (std::vector<std::int64_t>{0}));
}

TEST(FullAttention, ContextParallelRanksWidenTheBlock) {
  EngineOptions options = plain(20);
  options.manager.dcp_world_size = 2;
  Engine engine(options);
  Running running = engine.start(tokens(0, 17));
  engine.prefill(running);
  EXPECT_EQ(engine.table(running).size(), 3U);
  EXPECT_EQ(engine.hit(tokens(0, 17)), 16);
  EXPECT_EQ(engine.hit(tokens(0, 16)), 8);
}

// The state group makes hits end at hash units: the prompt's tail of 4 of 8 tokens is found as well.
EngineOptions fine_grained(bool eagle = false) {
  EngineOptions options{.num_blocks = 40, .groups = {full(8), mamba(8, MambaCacheMode::align)}, .hash_block_size = 4};
  options.manager.use_eagle = eagle;
  return options;
}

TEST(FullAttention, FineGrainedHitEndsInsideABlock) {
  Engine engine(fine_grained());
  engine.warm(tokens(0, 12));
  Running next = engine.start(tokens(0, 20));
  const PrefixHit hit = engine->get_computed_blocks(next.request);
  EXPECT_EQ(hit.num_computed_tokens, 12);
  EXPECT_EQ(hit.blocks.groups[0].size(), 2U);
  EXPECT_EQ(engine.prefill(next), 12);
  const std::vector<BlockCopy> copies = engine->take_block_copies();
  ASSERT_EQ(copies.size(), 2U) << "both groups go on inside a block that others may read";
  EXPECT_EQ(copies[0].source, hit.blocks.groups[0][1].id);
  EXPECT_EQ(engine.table(next, 0)[1], copies[0].target.value());
  EXPECT_EQ(engine.pool().ref_count(copies[0].source), 1U);
  EXPECT_EQ(engine.pool().ref_count(copies[0].target), 2U);
  for (const BlockCopy& copy : copies) engine.pool().free_blocks(std::vector{copy.source, copy.target});
  engine->free(next.sequence);
  EXPECT_EQ(engine.free_blocks(), 39U);
  engine.expect_sound();
}

TEST(FullAttention, FullBlockAlsoAnswersForThePromptTail) {
  Engine engine(fine_grained());
  Running running = engine.start(tokens(0, 12));
  engine.prefill(running);
  for (TokenId token = 12; token < 16; ++token) engine.decode(running, token);
  const BlockId tail{engine.table(running, 0)[1]};
  const std::span<const BlockHash> hashes = running.request.block_hashes();
  EXPECT_EQ(engine.pool().primary_key(tail)->hash, hashes[3]) << "promoted when it became full";
  EXPECT_EQ(engine.pool().covered_tokens(tail), 16);
  EXPECT_TRUE(engine.pool().has_key(tail, {hashes[2], GroupId{0}})) << "and still known for 12 tokens";
}

TEST(FullAttention, FineGrainedDraftDropIsOneUnit) {
  Engine engine(fine_grained(true));
  engine.warm(tokens(0, 16));
  const Request next = engine.request(tokens(0, 24));
  const PrefixHit hit = engine->get_computed_blocks(next);
  EXPECT_EQ(hit.num_computed_tokens % 4, 0);
  EXPECT_LT(hit.num_computed_tokens, 16);
}

KVCacheGroup rswa(std::int64_t block_size, std::int64_t size) {
  RswaSpec spec;
  spec.block_size = block_size;
  spec.rswa_window = size;
  return {{}, spec, false};
}

TEST(Rswa, KeepsThePromptAndAWindowOfGeneratedTokens) {
  Engine engine({.num_blocks = 30, .groups = {rswa(4, 8)}});
  Running running = engine.start(tokens(0, 16));
  engine.prefill(running);
  for (TokenId token = 16; token < 40; ++token) engine.decode(running, token);
  const Ids before = engine.table(running);
  EXPECT_EQ(before[3], 4U);
  Running other = engine.start(tokens(1000, 16));
  engine.prefill(other);
  for (TokenId token = 0; token < 12; ++token) engine.decode(other, 2000 + token);
  engine->remove_skipped_blocks(other.request, other.sequence, 28);
  Ids table = engine.table(other);
  EXPECT_EQ(table[4], 0U);
  EXPECT_NE(table[5], 0U);
  EXPECT_NE(table[3], 0U) << "the prompt stays";
  engine->remove_skipped_blocks(other.request, other.sequence, 36);
  table = engine.table(other);
  EXPECT_EQ(table[5], 0U);
  EXPECT_EQ(table[6], 0U);
  EXPECT_NE(table[3], 0U);
}

TEST(Rswa, IsLookedUpLikeFullAttention) {
  Engine engine({.num_blocks = 30, .groups = {rswa(4, 8)}});
  engine.warm(tokens(0, 16));
  EXPECT_EQ(engine.hit(tokens(0, 17)), 16);
  EXPECT_EQ(engine.hit(tokens(0, 10)), 8);
}

KVCacheGroup sink(std::int64_t block_size, std::int64_t sink_len) {
  SinkFullAttentionSpec spec;
  spec.block_size = block_size;
  spec.sink_len = sink_len;
  return {{}, spec, false};
}

TEST(SinkFullAttention, OwnsItsSinkBlocksForEver) {
  Engine engine({.num_blocks = 12, .groups = {sink(4, 8)}});
  EXPECT_EQ(values(engine->permanent_blocks(GroupId{0})), (Ids{1, 2}));
  EXPECT_EQ(engine.free_blocks(), 9U);
  Running running = engine.start(tokens(0, 10));
  engine.prefill(running);
  EXPECT_EQ(engine.table(running), (Ids{3, 4, 5}));
  engine->free(running.sequence);
  EXPECT_EQ(engine.free_blocks(), 9U);
  EXPECT_EQ(engine.hit(tokens(0, 10)), 8);
  for (const std::uint32_t id : engine.free_order()) EXPECT_GT(id, 2U);
}

TEST(SinkFullAttention, WorksBesideOtherGroupsAndWithZeroing) {
  EngineOptions options{.num_blocks = 30, .groups = {sink(4, 8), window(4, 8)}};
  options.manager.collect_blocks_to_zero = true;
  Engine engine(options);
  Running running = engine.start(tokens(0, 10));
  EXPECT_EQ(engine.prefill(running), 0);
  EXPECT_EQ(engine.table(running, 0), (Ids{3, 4, 5}));
}

TEST(SinkFullAttention, ResetForgetsContentAndKeepsTheSinks) {
  Engine engine({.num_blocks = 12, .groups = {sink(4, 8)}});
  engine.warm(tokens(0, 10));
  EXPECT_TRUE(engine->reset_prefix_cache());
  EXPECT_EQ(engine.hit(tokens(0, 10)), 0);
  EXPECT_EQ(engine.free_blocks(), 9U);
  Running running = engine.start(tokens(0, 10));
  engine.prefill(running);
  EXPECT_FALSE(engine->reset_prefix_cache()) << "a request is running";
}

TEST(SinkFullAttention, NeedsRoomForItsSinks) {
  EXPECT_THROW(Engine({.num_blocks = 2, .groups = {sink(4, 8)}}), std::runtime_error);
}

}  // namespace
}  // namespace kvpool::test
