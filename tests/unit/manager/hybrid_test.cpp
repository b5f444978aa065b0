// Several groups: one length for all of them, one allocation for all of them.
#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

TEST(Hybrid, GroupsAreFreedOneAfterTheOther) {
  Engine engine({.num_blocks = 100, .groups = {full(32), window(8, 8)}, .hash_block_size = 8});
  Running running = engine.start(tokens(0, 64));
  running.request.num_in_flight_tokens = 64;
  engine.step(running, 64);
  EXPECT_EQ(engine.table(running, 0), (Ids{1, 2}));
  EXPECT_EQ(engine.table(running, 1), (Ids{3, 4, 5, 6, 7, 8, 9, 10}));
  engine->free(running.sequence);
  const Ids order = engine.free_order();
  EXPECT_EQ(Ids(order.begin(), order.begin() + 8), (Ids{9, 8, 7, 5, 4, 3, 11, 12}));
  EXPECT_EQ(Ids(order.end() - 4, order.end()), (Ids{2, 1, 10, 6}));
}

TEST(Hybrid, PoppedBlocksAreFreedInOneCallAndAnotherOrder) {
  Engine engine({.num_blocks = 100, .groups = {full(32), window(8, 8)}, .hash_block_size = 8});
  Running running = engine.start(tokens(0, 64));
  running.request.num_in_flight_tokens = 64;
  engine.step(running, 64);
  std::vector<BlockId> blocks = engine->pop_blocks_for_free(running.sequence);
  EXPECT_EQ(values(blocks), (Ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_TRUE(engine.table(running, 0).empty());
  EXPECT_EQ(engine.free_blocks(), 89U) << "nothing is given back yet";
  std::reverse(blocks.begin(), blocks.end());
  engine.pool().free_blocks(blocks);
  const Ids order = engine.free_order();
  EXPECT_EQ(Ids(order.end() - 4, order.end()), (Ids{10, 6, 2, 1}));
}

TEST(Hybrid, FullAttentionIsAskedFirstWhateverTheOrderOfGroups) {
  Engine engine({.num_blocks = 100, .groups = {window(4, 8), full(4)}});
  engine.warm(tokens(0, 32));
  EXPECT_EQ(engine.hit(tokens(0, 32)), 28);
  const Request other = engine.request(tokens(0, 20) + tokens(900, 10));
  EXPECT_EQ(engine->get_computed_blocks(other).num_computed_tokens, 20);
}

TEST(Hybrid, EqualSpecsAreLookedUpTogether) {
  Engine engine({.num_blocks = 100, .groups = {full(4), full(4)}});
  Running running = engine.start(tokens(0, 16));
  engine.prefill(running);
  const BlockId second_group_block{engine.table(running, 1)[2]};
  engine->free(running.sequence);
  EXPECT_EQ(engine.hit(tokens(0, 17)), 16);
  engine->evict_blocks(std::span(&second_group_block, 1));
  EXPECT_EQ(engine.hit(tokens(0, 17)), 8) << "a block counts when both groups have it";
}

TEST(Hybrid, UncachedCommonPrefixIsReported) {
  Engine engine({.num_blocks = 100, .groups = {full(4), window(4, 8)}});
  Running running = engine.start(tokens(0, 32));
  engine.prefill(running);
  std::vector<BlockId> lost;
  for (const std::uint32_t id : engine.table(running, 1)) {
    if (id != 0) lost.push_back(BlockId{id});
  }
  engine->free(running.sequence);
  engine->evict_blocks(lost);
  const PrefixHit hit = engine->get_computed_blocks(engine.request(tokens(0, 33)));
  EXPECT_EQ(hit.num_computed_tokens, 0);
  EXPECT_EQ(hit.shared_prefix_boundary, 32);
}

TEST(Hybrid, OnlyTheFlaggedGroupDropsItsLastBlock) {
  EngineOptions options{.num_blocks = 100, .groups = {full(4), window(4, 8, true)}};
  options.manager.use_eagle = true;
  Engine engine(options);
  engine.warm(tokens(0, 32));
  // The window group looks one block further, so the common length is not shortened twice.
  EXPECT_EQ(engine.hit(tokens(0, 28) + tokens(800, 8)), 24);
  EXPECT_EQ(engine.hit(tokens(0, 33)), 28);
}

TEST(Hybrid, TwoSizesWithoutFullAttentionAgreeAfterSeveralRounds) {
  Engine engine({.num_blocks = 200, .groups = {window(4, 8), window(8, 24)}, .hash_block_size = 4});
  engine.warm(tokens(0, 64));
  const std::int64_t hit = engine.hit(tokens(0, 48) + tokens(700, 20));
  EXPECT_EQ(hit % 8, 0);
  EXPECT_LE(hit, 48);
}

// One group that can neither be looked up inside its blocks nor has blocks of one hash unit keeps all hits at the ends
// of whole scheduler blocks.
TEST(Hybrid, HitsInsideABlockNeedFineLookUpInEveryGroup) {
  const auto hit = [](std::int64_t window_block) {
    Engine engine({.num_blocks = 60,
                   .groups = {full(8), mamba(8, MambaCacheMode::align), window(window_block, 8)},
                   .hash_block_size = 4});
    Running owner = engine.start(tokens(0, 12));
    engine.step(owner, 8);
    engine.step(owner, 4);
    engine->new_step_starts();
    return engine.hit(tokens(0, 15));
  };
  EXPECT_EQ(hit(4), 12) << "windows of one hash unit a block";
  EXPECT_EQ(hit(8), 8);
}

TEST(Hybrid, CachesWholeAlignmentUnitsOnly) {
  Engine engine({.num_blocks = 100, .groups = {full(8), window(4, 8)}, .hash_block_size = 4});
  Running running = engine.start(tokens(0, 12));
  running.request.num_in_flight_tokens = 12;
  engine.step(running, 12);
  EXPECT_TRUE(engine.pool().primary_key(BlockId{engine.table(running, 0)[0]}).has_value());
  EXPECT_FALSE(engine.pool().primary_key(BlockId{engine.table(running, 1)[2]}).has_value())
      << "tokens 8..11 end no block of the full group";
}

TEST(Hybrid, ConnectorSeesGroupsThatFallBehind) {
  Engine engine({.num_blocks = 100, .groups = {full(4), mamba(4, MambaCacheMode::all)}});
  Running running = engine.start(tokens(0, 16));
  engine.prefill(running);
  const Ids states = engine.table(running, 1);
  engine->new_step_starts();
  engine->free(running.sequence);
  const std::vector<BlockId> lost{BlockId{states[2]}, BlockId{states[3]}};
  engine->evict_blocks(lost);
  const Request next = engine.request(tokens(0, 17));
  EXPECT_EQ(engine->get_computed_blocks(next).num_computed_tokens, 8);
  const PrefixHit hit = engine->get_computed_blocks_for_connector(next);
  EXPECT_EQ(hit.num_computed_tokens, 16);
  EXPECT_TRUE(hit.diverged);
  EXPECT_EQ(hit.blocks.groups[0].size(), 4U);
  EXPECT_EQ(hit.blocks.groups[1].size(), 2U);
}

TEST(Hybrid, ConnectorFallsBackWhenAStateLiesBehindTheAttentionPrefix) {
  Engine engine({.num_blocks = 100, .groups = {full(4), mamba(4, MambaCacheMode::all)}});
  Running running = engine.start(tokens(0, 16));
  engine.prefill(running);
  const BlockId second{engine.table(running, 0)[1]};
  engine->new_step_starts();
  engine->free(running.sequence);
  engine->evict_blocks(std::span(&second, 1));
  const PrefixHit hit = engine->get_computed_blocks_for_connector(engine.request(tokens(0, 17)));
  EXPECT_FALSE(hit.diverged);
  EXPECT_EQ(hit.num_computed_tokens, 4);
}

TEST(Hybrid, TruncatedHitIsAPureView) {
  Engine engine({.num_blocks = 100, .groups = {full(4), mamba(4, MambaCacheMode::all)}});
  engine.warm(tokens(0, 16));
  const PrefixHit hit = engine->get_computed_blocks(engine.request(tokens(0, 17)));
  const auto shorter = engine->truncate_computed_blocks(hit.blocks, 8);
  ASSERT_TRUE(shorter);
  EXPECT_EQ(shorter->groups[0].size(), 2U);
  EXPECT_EQ(shorter->groups[1].size(), 2U);
  EXPECT_FALSE(engine->truncate_computed_blocks(hit.blocks, 6));
  EXPECT_FALSE(engine->truncate_computed_blocks(hit.blocks, 20));
}

TEST(CachingOff, NothingIsFoundAndFreesFormAStack) {
  EngineOptions options{.num_blocks = 20, .groups = {full(4), window(4, 8)}};
  options.manager.enable_caching = false;
  Engine engine(options);
  Running a = engine.start(tokens(0, 8));
  EXPECT_EQ(engine.prefill(a), 0);
  EXPECT_EQ(engine->get_num_common_prefix_blocks(a.sequence), (std::vector<std::int64_t>{0, 0}));
  engine->free(a.sequence);
  EXPECT_EQ(engine.hit(tokens(0, 9)), 0);
  const Ids order = engine.free_order();
  EXPECT_EQ(Ids(order.begin(), order.begin() + 4), (Ids{4, 3, 2, 1}));
}

TEST(CrossAttention, BlocksForTheEncoderOnceAndNeverShared) {
  EngineOptions options{.num_blocks = 300, .groups = {full(16), cross(16)}};
  options.manager.enable_caching = false;
  Engine engine(options);
  Running running = engine.start(tokens(0, 20));
  AllocateSlots encoder;
  encoder.num_encoder_tokens = 1500;
  engine.step(running, 20, encoder);
  EXPECT_EQ(engine.table(running, 1).size(), 94U);
  engine.decode(running, 1);
  EXPECT_EQ(engine.table(running, 1).size(), 94U);
  engine->free(running.sequence);
  EXPECT_EQ(engine.free_blocks(), 299U);
}

}  // namespace
}  // namespace kvpool::test
