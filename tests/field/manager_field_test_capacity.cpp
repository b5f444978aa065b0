// Failures reported from the field: capacity accounting, as seen through the manager.
#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

TEST(ManagerField, F006_AGroupThatFailsTakesNothingFromTheOthers) {
  for (const bool state_first : {false, true}) {
    std::vector<KVCacheGroup> groups{full(4), mamba(4, MambaCacheMode::align)};
    if (state_first) std::swap(groups[0], groups[1]);
    Engine engine({.num_blocks = 7, .groups = groups});
    Running a = engine.start(tokens(0, 16));  // 4 + 1 of 6
    ASSERT_EQ(engine.prefill(a), 0);
    for (int attempt = 0; attempt < 100; ++attempt) {
      Running b = engine.start(tokens(500, 8));  // 2 + 1
      ASSERT_EQ(engine.prefill(b), -1);
      ASSERT_EQ(engine.free_blocks(), 1U);
    }
    engine->free(a.sequence);
    Running b = engine.start(tokens(500, 8));
    EXPECT_EQ(engine.prefill(b), 0);
  }
}

TEST(ManagerField, F031_AFullHitLeavesSomethingToCompute) {
  Engine engine({.num_blocks = 20, .groups = {full(16)}});
  engine.warm(tokens(0, 48));
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected{{16, 0},  {17, 16}, {47, 32},
                                                                    {48, 32}, {49, 48}, {64, 48}};
  for (const auto& [length, hit] : expected) EXPECT_EQ(engine.hit(tokens(0, length)), hit) << length;
}

TEST(ManagerField, F032_DraftTokensHaveSlotsUpToTheMaximumLength) {
  EngineOptions options{.num_blocks = 20, .groups = {full(16)}};
  options.manager.max_model_len = 32;
  AllocateSlots drafts;
  drafts.num_lookahead_tokens = 4;
  const std::vector<std::pair<std::int64_t, std::size_t>> expected{{11, 1}, {12, 2}, {15, 2}, {16, 2}, {31, 2}};
  for (const auto& [computed, blocks] : expected) {
    Engine engine(options);
    Running running = engine.start(tokens(0, computed + 1));
    engine.step(running, computed);
    engine.step(running, 1, drafts);
    EXPECT_EQ(engine.table(running).size(), blocks) << computed;
  }
}

TEST(ManagerField, F033_SpeculativeStatesNeedRoomInTheTable) {
  EngineOptions options{.num_blocks = 40, .groups = {full(16), mamba(16, MambaCacheMode::align, 2)}};
  options.manager.max_model_len = 64;
  Engine engine(options);
  Running running = engine.start(tokens(0, 60));
  engine.prefill(running);
  for (TokenId token = 60; token < 64; ++token) engine.decode(running, token);
  EXPECT_EQ(engine.table(running, 1).size(), 6U) << "4 positions and 2 speculative states";
}

TEST(ManagerField, F037_AStateGroupNeedsTwoBlocksForALongLoad) {
  EngineOptions options{.num_blocks = 21, .groups = {full(16), mamba(16, MambaCacheMode::align)}};
  Engine engine(options);
  Running running = engine.start(tokens(0, 256));
  AllocateSlots load;
  load.num_external_computed_tokens = 240;
  load.num_new_tokens = 16;
  EXPECT_EQ(*engine->can_allocate_slots(running.request, running.sequence, load), AllocateOutcome::allocated);
  EXPECT_EQ(engine.step(running, 16, load).outcome, AllocateOutcome::allocated);
  EXPECT_EQ(engine.table(running, 0).size(), 16U);
  std::int64_t states = 0;
  for (const std::uint32_t id : engine.table(running, 1)) states += id != 0 ? 1 : 0;
  EXPECT_EQ(states, 2);
  EXPECT_EQ(engine.free_blocks(), 2U);
}

TEST(ManagerField, F039_EveryBlockSizeWorks) {
  for (const std::int64_t size : {1, 3, 8, 16, 17, 256}) {
    Engine engine({.num_blocks = 40, .groups = {full(size)}});
    Running running = engine.start(tokens(0, 2 * size + 1));
    EXPECT_EQ(engine.prefill(running), 0);
    EXPECT_EQ(engine.table(running).size(), 3U);
    engine->free(running.sequence);
    EXPECT_EQ(engine.hit(tokens(0, 2 * size + 1)), 2 * size);
  }
  KVCacheConfig config;
  config.num_blocks = 4;
  config.groups = {full(0)};
  KVCacheManagerOptions options;
  options.max_model_len = options.scheduler_block_size = options.hash_block_size = 16;
  EXPECT_FALSE(KVCacheManager::create(config, options));
}

TEST(ManagerField, F040_TheNullBlockIsNoCapacity) {
  for (const std::int64_t length : {1088, 1104}) {
    EngineOptions options{.num_blocks = 69, .groups = {full(16)}};
    options.manager.max_model_len = length;
    Engine engine(options);
    Running running = engine.start(tokens(0, length));
    AllocateSlots arguments;
    arguments.num_new_tokens = length;
    const bool fits =
        *engine->can_allocate_slots(running.request, running.sequence, arguments) == AllocateOutcome::allocated;
    EXPECT_EQ(fits, length == 1088);
    EXPECT_EQ(engine.prefill(running) == 0, fits);
  }
}

TEST(ManagerField, F041_SpareBlocksEndAtTheMaximumLength) {
  EngineOptions options{.num_blocks = 40, .groups = {full(16)}};
  options.manager.max_model_len = 64;
  Engine engine(options);
  AllocateSlots spare;
  spare.num_lookahead_tokens = 64;
  Running running = engine.start(tokens(0, 33));
  engine.step(running, 33, spare);
  EXPECT_EQ(engine.table(running).size(), 4U);
  for (TokenId token = 33; token < 64; ++token) engine.decode(running, token, spare);
  EXPECT_EQ(engine.table(running).size(), 4U);
  const std::uint32_t free = engine.free_blocks();
  AllocateSlots beyond;
  beyond.num_external_computed_tokens = 1;
  const auto refused = engine->allocate_slots(running.request, running.sequence, beyond);
  EXPECT_FALSE(refused);
  EXPECT_EQ(engine.free_blocks(), free);
}

TEST(ManagerField, F042_LengthsAtBlockBoundaries) {
  const std::vector<std::pair<std::int64_t, std::size_t>> expected{{1, 1}, {3, 1}, {4, 1}, {5, 2}, {8, 2}};
  for (const auto& [length, blocks] : expected) {
    Engine engine({.num_blocks = 10, .groups = {full(4)}});
    Running running = engine.start(tokens(0, length));
    engine.prefill(running);
    EXPECT_EQ(engine.table(running).size(), blocks) << length;
    for (const std::uint32_t id : engine.table(running)) EXPECT_EQ(engine.pool().ref_count(BlockId{id}), 1U);
  }
}

}  // namespace
}  // namespace kvpool::test
