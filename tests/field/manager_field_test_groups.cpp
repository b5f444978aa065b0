// Failures reported from the field: windows, states, chunks and several groups together.
#include <algorithm>

#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

std::int64_t nulls(const Ids& table) { return std::count(table.begin(), table.end(), 0U); }

TEST(ManagerField, F057_EveryGroupIsCutToTheSharedHit) {
  Engine engine({.num_blocks = 60, .groups = {full(4), full(8)}, .hash_block_size = 4});
  Running warm = engine.start(tokens(0, 24));
  engine.prefill(warm);
  const BlockId third{engine.table(warm, 1)[2]};
  engine->free(warm.sequence);
  engine->evict_blocks(std::span(&third, 1));
  Running next = engine.start(tokens(0, 32));
  const PrefixHit hit = engine->get_computed_blocks(next.request);
  EXPECT_EQ(hit.num_computed_tokens, 16);
  EXPECT_EQ(hit.blocks.groups[0].size(), 4U);
  EXPECT_EQ(hit.blocks.groups[1].size(), 2U);
  AllocateSlots arguments;
  arguments.num_new_computed_tokens = 16;
  arguments.new_computed_blocks = &hit.blocks;
  const AllocatedSlots slots = engine.step(next, 16, arguments);
  EXPECT_EQ(slots.new_blocks[0].size(), 4U);
  EXPECT_EQ(slots.new_blocks[1].size(), 2U);
}

TEST(ManagerField, F058_AMissingStateShortensTheHit) {
  Engine engine({.num_blocks = 60, .groups = {full(16), mamba(16, MambaCacheMode::all)}});
  Running running = engine.start(tokens(0, 32));
  engine.prefill(running);
  const Ids states = engine.table(running, 1);
  engine->new_step_starts();
  engine->free(running.sequence);
  const BlockId second{states[1]};
  engine->evict_blocks(std::span(&second, 1));
  EXPECT_EQ(engine.hit(tokens(0, 33)), 16);
  const BlockId first{states[0]};
  engine->evict_blocks(std::span(&first, 1));
  EXPECT_EQ(engine.hit(tokens(0, 33)), 0);
}

TEST(ManagerField, F060_TokensPerBlockDifferBetweenGroups) {
  MlaAttentionSpec compressed;  // 16 stored entries of 4 tokens each
  compressed.block_size = 64;
  compressed.compress_ratio = 4;
  Engine engine(
      {.num_blocks = 80, .groups = {full(16), full(64), KVCacheGroup{{}, compressed, false}}, .hash_block_size = 16});
  engine.warm(tokens(0, 200));
  EXPECT_EQ(engine.hit(tokens(0, 63)), 0);
  EXPECT_EQ(engine.hit(tokens(0, 65)), 64);
  EXPECT_EQ(engine.hit(tokens(0, 130)), 128);
  EXPECT_EQ(engine.hit(tokens(0, 201)), 192);
}

TEST(ManagerField, F061_WhenABlockLeavesTheWindow) {
  Engine large({.num_blocks = 600, .groups = {window(16, 4096)}});
  Running a = large.start(tokens(0, 4112));
  a.request.num_in_flight_tokens = 5000;
  large.step(a, 4112);
  large->remove_skipped_blocks(a.request, a.sequence, 4110);
  EXPECT_EQ(nulls(large.table(a)), 0);
  large->remove_skipped_blocks(a.request, a.sequence, 4111);
  EXPECT_EQ(nulls(large.table(a)), 1);

  Engine small({.num_blocks = 20, .groups = {window(2, 4)}});
  Running b = small.start(tokens(0, 14));
  b.request.num_in_flight_tokens = 100;
  small.step(b, 14);
  for (std::int64_t computed = 0; computed <= 12; ++computed) {
    small->remove_skipped_blocks(b.request, b.sequence, computed);
    EXPECT_EQ(nulls(small.table(b)), std::max<std::int64_t>(0, computed - 3) / 2) << computed;
  }
}

TEST(ManagerField, F062_ChunksAreReleasedWholeAndHashingGoesOn) {
  Engine engine({.num_blocks = 40, .groups = {full(4), chunked(4, 8)}});
  Running running = engine.start(tokens(0, 24));
  running.request.num_in_flight_tokens = 16;
  engine.step(running, 16);
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected{{7, 0}, {8, 2}, {15, 2}, {16, 4}};
  for (const auto& [computed, released] : expected) {
    engine->remove_skipped_blocks(running.request, running.sequence, computed);
    EXPECT_EQ(nulls(engine.table(running, 1)), released) << computed;
  }
  running.request.num_in_flight_tokens = 0;
  engine.step(running, 4);
  engine->free(running.sequence);
  const PrefixHit hit = engine->get_computed_blocks(engine.request(tokens(0, 18)));
  EXPECT_EQ(hit.num_computed_tokens, 16);
  EXPECT_EQ(std::count_if(hit.blocks.groups[1].begin(), hit.blocks.groups[1].end(),
                          [](const BlockHandle& block) { return !block.is_null(); }),
            0)
      << "nothing before token 16 is needed";
}

TEST(ManagerField, F063_CrossBlocksFollowTheItemAndAllReturn) {
  EngineOptions options{.num_blocks = 250, .groups = {full(16), cross(16)}};
  options.manager.enable_caching = false;
  options.manager.max_model_len = 1024;  // the text limit, below the encoder's 1500
  Engine engine(options);
  AllocateSlots encoder;
  encoder.num_encoder_tokens = 1500;
  Running a = engine.start(tokens(0, 16));
  Running b = engine.start(tokens(0, 16));
  engine.step(a, 16, encoder);
  engine.step(b, 16, encoder);
  EXPECT_EQ(engine.table(a, 1).size(), 94U);
  for (const std::uint32_t id : engine.table(a, 1)) {
    const Ids other = engine.table(b, 1);
    EXPECT_EQ(std::find(other.begin(), other.end(), id), other.end());
  }
  engine->free(a.sequence);  // preempted
  a.request.num_computed_tokens = 0;
  engine->free(b.sequence);
  EXPECT_EQ(engine.free_blocks(), 249U);
}

TEST(ManagerField, F064_CommittingAChainNeverEvictsItsOwnBlocks) {
  EngineOptions options{.num_blocks = 600, .groups = {full(4), mamba(4, MambaCacheMode::align)}};
  options.retention_interval = 64;
  Engine engine(options);
  Running running = engine.start(tokens(0, 2048));
  for (int chunk = 0; chunk < 32; ++chunk) {
    engine->new_step_starts();
    ASSERT_EQ(engine.step(running, 64).outcome, AllocateOutcome::allocated);
    engine.expect_sound();
  }
  const Ids chain = engine.table(running, 0);
  for (std::size_t i = 0; i < chain.size(); ++i) {
    ASSERT_EQ(engine.pool().primary_key(BlockId{chain[i]})->hash, running.request.block_hashes()[i]);
  }
}

TEST(ManagerField, F065_AnObserverFollowsMovedStates) {
  Engine engine({.num_blocks = 60, .groups = {full(4), mamba(4, MambaCacheMode::align, 2)}});
  Running running = engine.start(tokens(0, 4));
  Ids observed;
  const auto follow = [&](const AllocatedSlots& slots) {
    const Ids fresh = values(slots.new_blocks[1]);
    observed.insert(observed.end(), fresh.begin(), fresh.end());
    // The answer is the new tail of the table; entries that moved or left are told by the table itself.
    const Ids table = engine.table(running, 1);
    ASSERT_EQ(observed.size(), table.size());
    ASSERT_TRUE(std::equal(fresh.begin(), fresh.end(), table.end() - static_cast<std::ptrdiff_t>(fresh.size())));
    observed = table;
  };
  follow(engine.step(running, 4));
  for (TokenId token = 4; token < 44; ++token) {
    engine->new_step_starts();
    follow(engine.decode(running, token));
  }
  std::vector<BlockId> held;
  for (const std::uint32_t id : observed) {
    if (id != 0) held.push_back(BlockId{id});
  }
  for (const BlockId block : held) EXPECT_EQ(engine.pool().ref_count(block), 1U);
  engine->free(running.sequence);
  for (const BlockId block : held) EXPECT_EQ(engine.pool().ref_count(block), 0U);
}

TEST(ManagerField, F066_TheHitIsNeverTheMaximumOverGroups) {
  Engine engine({.num_blocks = 60, .groups = {full(16), mamba(16, MambaCacheMode::all)}});
  Running running = engine.start(tokens(0, 48));
  engine.prefill(running);
  const Ids attention = engine.table(running, 0);
  const Ids states = engine.table(running, 1);
  engine->new_step_starts();
  engine->free(running.sequence);
  const std::vector<BlockId> lost{BlockId{attention[1]}, BlockId{attention[2]}, BlockId{states[0]}, BlockId{states[1]}};
  engine->evict_blocks(lost);  // full attention 16 tokens, one state at 48
  Running next = engine.start(tokens(0, 49));
  EXPECT_EQ(engine->get_computed_blocks(next.request).num_computed_tokens, 0);
  const PrefixHit for_connector = engine->get_computed_blocks_for_connector(next.request);
  EXPECT_EQ(for_connector.num_computed_tokens, 0) << "a deeper state is no hit";
  // The connector has the attention up to 48: one common length for all groups.
  AllocateSlots load;
  load.num_external_computed_tokens = 48;
  EXPECT_EQ(engine.step(next, 1, load).outcome, AllocateOutcome::allocated);
  EXPECT_EQ(next.request.num_computed_tokens, 49);
}

TEST(ManagerField, F066_AStateThatFellBehindLimitsTheHit) {
  Engine engine({.num_blocks = 60, .groups = {full(16), mamba(16, MambaCacheMode::all)}});
  Running running = engine.start(tokens(0, 48));
  engine.prefill(running);
  const Ids states = engine.table(running, 1);
  engine->new_step_starts();
  engine->free(running.sequence);
  engine->evict_blocks(std::vector{BlockId{states[1]}, BlockId{states[2]}});
  EXPECT_EQ(engine.hit(tokens(0, 49)), 16);
}

TEST(ManagerField, F067_TheWindowMovesOnSettledTokensOnly) {
  Engine engine({.num_blocks = 30, .groups = {window(4, 8)}});
  Running running = engine.start(tokens(0, 16));
  running.request.num_in_flight_tokens = 16;
  engine.step(running, 16);
  running.request.num_in_flight_tokens = 0;
  AllocateSlots drafts;
  drafts.num_lookahead_tokens = 4;
  running.request.append_tokens(tokens(16, 4));
  engine.step(running, 4, drafts);  // 16 settled: 16 - 7 = 9 tokens, 2 blocks
  EXPECT_EQ(nulls(engine.table(running)), 2);
  running.request.num_in_flight_tokens = 4;  // computed says 20, 4 of them in flight
  engine.step(running, 4, drafts);
  EXPECT_EQ(nulls(engine.table(running)), 2) << "not 4";
  running.request.num_computed_tokens = 20;  // drafts rejected
  running.request.num_in_flight_tokens = 0;
  engine->remove_skipped_blocks(running.request, running.sequence, 20);
  const Ids table = engine.table(running);
  for (std::size_t block = 13 / 4; block <= 20 / 4; ++block) EXPECT_NE(table[block], 0U) << block;
}

}  // namespace
}  // namespace kvpool::test
