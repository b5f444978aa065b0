// Rules of recurrent state in its three modes.
#include <set>
#include <utility>

#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

std::set<std::size_t> published(Engine& engine, const Running& running, std::uint32_t group) {
  std::set<std::size_t> kept;
  const Ids table = engine.table(running, group);
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i] != 0 && engine.pool().primary_key(BlockId{table[i]})) kept.insert(i);
  }
  return kept;
}

EngineOptions with_state(MambaCacheMode mode, std::int64_t block_size, std::int64_t speculative = 0,
                         std::int64_t num_blocks = 60) {
  return {.num_blocks = num_blocks, .groups = {full(block_size), mamba(block_size, mode, speculative)}};
}

TEST(MambaNone, OneLongBlockAndTheSpeculativeOnes) {
  EngineOptions options{.num_blocks = 40, .groups = {full(16), mamba(1024, MambaCacheMode::none, 2)}};
  options.manager.enable_caching = false;
  Engine engine(options);
  Running running = engine.start(tokens(0, 100));
  engine.step(running, 100);
  EXPECT_EQ(engine.table(running, 1).size(), 3U);
  for (TokenId token = 0; token < 40; ++token) engine.decode(running, token);
  EXPECT_EQ(engine.table(running, 1).size(), 3U);
  engine->free(running.sequence);
  EXPECT_EQ(engine.free_blocks(), 39U);
}

TEST(MambaAll, OnlyTheLastMatchingStateIsReturned) {
  Engine engine(with_state(MambaCacheMode::all, 4));
  engine.warm(tokens(0, 16));
  const Request next = engine.request(tokens(0, 14));
  const PrefixHit hit = engine->get_computed_blocks(next);
  EXPECT_EQ(hit.num_computed_tokens, 12);
  ASSERT_EQ(hit.blocks.groups[1].size(), 3U);
  EXPECT_TRUE(hit.blocks.groups[1][0].is_null());
  EXPECT_TRUE(hit.blocks.groups[1][1].is_null());
  EXPECT_FALSE(hit.blocks.groups[1][2].is_null());
}

TEST(MambaAll, StateOfThisStepIsReadInTheNextOne) {
  Engine engine(with_state(MambaCacheMode::all, 4));
  Running writer = engine.start(tokens(0, 12));
  engine.prefill(writer);
  Running reader = engine.start(tokens(0, 13));
  EXPECT_EQ(engine.prefill(reader), -1) << "does not fit now";
  EXPECT_EQ(engine.pool().ref_count(BlockId{1}), 1U) << "and nothing was taken";
  engine->new_step_starts();
  EXPECT_EQ(engine.prefill(reader), 12);
}

TEST(MambaAlign, NullEntriesUpToTheRunningState) {
  Engine engine(with_state(MambaCacheMode::align, 16));
  Running running = engine.start(tokens(0, 55));
  engine.prefill(running);
  EXPECT_EQ(engine.table(running, 0), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(engine.table(running, 1), (Ids{0, 0, 0, 5}));
}

TEST(MambaAlign, ChunksLeaveTheStateOfTheStepBefore) {
  Engine engine(with_state(MambaCacheMode::align, 4));
  Running running = engine.start(tokens(0, 16));
  std::vector<std::size_t> live;
  for (int chunk = 0; chunk < 4; ++chunk) {
    engine->new_step_starts();
    engine.step(running, 4);
    std::size_t count = 0;
    for (const std::uint32_t id : engine.table(running, 1)) count += id != 0 ? 1 : 0;
    live.push_back(count);
  }
  EXPECT_EQ(live, (std::vector<std::size_t>{1, 2, 2, 2}));
}

TEST(MambaAlign, SpeculativeStatesMoveAlongTheTable) {
  Engine engine(with_state(MambaCacheMode::align, 4, 2));
  Running running = engine.start(tokens(0, 4));
  engine.prefill(running);
  const Ids first = engine.table(running, 1);
  ASSERT_EQ(first.size(), 3U);
  const std::uint32_t used = engine.free_blocks();
  for (TokenId token = 4; token < 40; ++token) {
    engine->new_step_starts();
    engine.decode(running, token);
    std::size_t live = 0;
    for (const std::uint32_t id : engine.table(running, 1)) live += id != 0 ? 1 : 0;
    EXPECT_LE(live, 4U) << "running, the one before, two speculative";
    EXPECT_EQ(engine.table(running, 1).size(), static_cast<std::size_t>((token + 4) / 4) + 2);
  }
  EXPECT_LT(engine.free_blocks(), used);
  engine->free(running.sequence);
  EXPECT_EQ(engine.free_blocks(), 59U);
  engine.expect_sound();
}

TEST(MambaAlign, ForecastIsWhatIsTaken) {
  Engine engine(with_state(MambaCacheMode::align, 16, 0, 21));
  Running running = engine.start(tokens(0, 256));
  AllocateSlots external;
  external.num_external_computed_tokens = 240;
  const std::uint32_t before = engine.free_blocks();
  EXPECT_EQ(engine.step(running, 16, external).outcome, AllocateOutcome::allocated);
  EXPECT_EQ(before - engine.free_blocks(), 18U) << "16 full blocks, the loaded state and the running one";
}

struct MaskCase {
  const char* name;
  std::optional<std::int64_t> interval;
  std::int64_t junction;
  std::set<std::size_t> kept;
};

class MambaMask : public testing::TestWithParam<MaskCase> {};

TEST_P(MambaMask, KeepsCheckpointsAndBoundaries) {
  EngineOptions options = with_state(MambaCacheMode::all, 16);
  options.retention_interval = GetParam().interval;
  Engine engine(options);
  Running running = engine.start(tokens(0, 256));
  running.request.shared_prefix_boundary = GetParam().junction;
  running.request.num_in_flight_tokens = 256;
  engine.step(running, 256);
  EXPECT_EQ(published(engine, running, 1), GetParam().kept);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, MambaMask,
    testing::Values(MaskCase{"every_block", 16, 0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
                    MaskCase{"interval", 64, 0, {3, 7, 11, 14, 15}}, MaskCase{"boundary", 0, 0, {14}},
                    MaskCase{"junction", 0, 96, {5, 14}}, MaskCase{"junction_rounded_down", 0, 100, {5, 14}}),
    [](const auto& param) { return std::string(param.param.name); });

// Hash units of 4 in blocks of 8: the prompt's last state is registered inside a block.
EngineOptions partial() {
  return {.num_blocks = 60, .groups = {full(8), mamba(8, MambaCacheMode::align)}, .hash_block_size = 4};
}

void release(Engine& engine, const std::vector<BlockCopy>& copies) {
  for (const BlockCopy& copy : copies) engine.pool().free_blocks(std::vector{copy.source, copy.target});
}

TEST(MambaAlign, PromptTailIsRegisteredAndCopiedBeforeItsOwnerGoesOn) {
  Engine engine(partial());
  Running owner = engine.start(tokens(0, 12));
  engine.step(owner, 8);
  engine->new_step_starts();
  engine.step(owner, 4);
  const BlockId tail{engine.table(owner, 1)[1]};
  ASSERT_TRUE(engine.pool().primary_key(tail).has_value());
  EXPECT_EQ(engine.pool().covered_tokens(tail), 12);
  engine->new_step_starts();
  engine.decode(owner, 12);
  const std::vector<BlockCopy> copies = engine->take_block_copies();
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies[0].source, tail) << "workers only append to their table, so the owner keeps its block";
  EXPECT_EQ(engine.table(owner, 1)[1], tail.value());
  EXPECT_FALSE(engine.pool().primary_key(tail).has_value());
  EXPECT_EQ(engine.pool().covered_tokens(copies[0].target), 12) << "content and keys moved to the copy";

  const std::vector<PartialTailOffload> offloads = engine->take_partial_tail_offloads(owner.sequence);
  ASSERT_EQ(offloads.size(), 1U);
  EXPECT_EQ(offloads[0].block, copies[0].target);
  EXPECT_EQ(offloads[0].boundary, 12);
  EXPECT_EQ(offloads[0].group, GroupId{1});
  EXPECT_TRUE(engine->take_partial_tail_offloads(owner.sequence).empty());
  EXPECT_EQ(engine.pool().ref_count(copies[0].target), 2U);
  release(engine, copies);
  EXPECT_EQ(engine.pool().ref_count(copies[0].target), 1U) << "pinned for the connector";
  engine->free(owner.sequence);
  EXPECT_EQ(engine.free_blocks(), 59U);
  EXPECT_EQ(engine.hit(tokens(0, 20)), 12);
}

// With a prefill look-ahead, content counts as final some tokens late. The running block holds a later state by then.
TEST(MambaAlign, PromptTailIsNotRegisteredWhenItsStateIsGone) {
  EngineOptions options = partial();
  options.manager.use_eagle = true;
  options.manager.num_prefill_lookahead = 3;
  Engine engine(options);
  Running owner = engine.start(tokens(0, 13));
  engine.step(owner, 8);
  engine.step(owner, 4);
  const BlockId running{engine.table(owner, 1)[1]};
  for (TokenId token = 100; token < 108; ++token) {
    engine.decode(owner, token);
    ASSERT_NE(engine.pool().covered_tokens(running), 12) << "registered for 12 tokens, holds the state of more";
    ASSERT_TRUE(engine->take_block_copies().empty());
  }
  engine->free(owner.sequence);
  EXPECT_EQ(engine.free_blocks(), 59U);
  engine.expect_sound();
}

TEST(MambaAlign, PendingOffloadsAreDroppedWithTheRequest) {
  Engine engine(partial());
  Running owner = engine.start(tokens(0, 12));
  engine.step(owner, 8);
  engine.step(owner, 4);
  engine->new_step_starts();
  engine.decode(owner, 12);
  release(engine, engine->take_block_copies());
  engine->free(owner.sequence);
  EXPECT_TRUE(engine->take_partial_tail_offloads(owner.sequence).empty());
  EXPECT_EQ(engine.free_blocks(), 59U);
}

TEST(MambaAlign, NewReaderOfATailGetsACopy) {
  Engine engine(partial());
  engine.warm(tokens(0, 12));
  Running reader = engine.start(tokens(0, 20));
  EXPECT_EQ(engine.prefill(reader), 12);
  const std::vector<BlockCopy> copies = engine->take_block_copies();
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(copies[1].target.value(), engine.table(reader, 1)[1]);
  EXPECT_TRUE(engine.pool().primary_key(copies[1].source).has_value());
  EXPECT_FALSE(engine.pool().is_block_writable(copies[1].source));
  release(engine, copies);
  engine->free(reader.sequence);
  EXPECT_EQ(engine.free_blocks(), 59U);
  engine.expect_sound();
}

TEST(MambaAlign, JunctionIsKeptForTheNextSibling) {
  EngineOptions options = with_state(MambaCacheMode::align, 16);
  options.retention_interval = 0;
  Engine engine(options);
  const auto serve = [&engine](std::vector<TokenId> prompt, std::int64_t hit_tokens, std::int64_t boundary) {
    Running running = engine.start(std::move(prompt));
    const PrefixHit hit = engine->get_computed_blocks(running.request);
    EXPECT_EQ(hit.num_computed_tokens, hit_tokens);
    EXPECT_EQ(hit.shared_prefix_boundary, boundary);
    running.request.shared_prefix_boundary = hit.shared_prefix_boundary;
    AllocateSlots arguments;
    arguments.num_new_computed_tokens = hit.num_computed_tokens;
    arguments.new_computed_blocks = &hit.blocks;
    while (running.request.num_computed_tokens < running.request.num_tokens()) {
      EXPECT_EQ(engine.step(running, 16, std::exchange(arguments, {})).outcome, AllocateOutcome::allocated);
      engine->new_step_starts();
    }
    engine->free(running.sequence);
  };
  serve(tokens(0, 64), 0, 0);
  serve(tokens(0, 32) + tokens(700, 32), 0, 32);  // full attention has 32 tokens, the states do not
  serve(tokens(0, 32) + tokens(800, 32), 32, 0);
}

}  // namespace
}  // namespace kvpool::test
