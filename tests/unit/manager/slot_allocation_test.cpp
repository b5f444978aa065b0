// The contract of allocate_slots: what it needs, what it refuses, what a refusal leaves behind.
#include <limits>

#include "kvpool/foundation/contract.hpp"
#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

EngineOptions plain(std::int64_t num_blocks, std::int64_t block_size = 4) {
  return {.num_blocks = num_blocks, .groups = {full(block_size)}};
}

ErrorCode error_of(Engine& engine, Running& running, const AllocateSlots& arguments) {
  const auto slots = engine->allocate_slots(running.request, running.sequence, arguments);
  return slots ? ErrorCode::internal : slots.error().code;
}

TEST(AllocateSlots, RefusesArgumentsThatMakeNoSense) {
  Engine engine(plain(10));
  Running running = engine.start(tokens(0, 9));
  EXPECT_EQ(error_of(engine, running, {}), ErrorCode::invalid_argument) << "nothing to allocate for";
  AllocateSlots negative;
  negative.num_new_tokens = -1;
  EXPECT_EQ(error_of(engine, running, negative), ErrorCode::invalid_argument);
  AllocateSlots hitless;
  hitless.num_new_tokens = 1;
  hitless.num_new_computed_tokens = 4;
  EXPECT_EQ(error_of(engine, running, hitless), ErrorCode::invalid_argument);
  AllocateSlots beyond;
  beyond.num_new_tokens = 1;
  beyond.num_external_computed_tokens = (1 << 20) + 1;
  EXPECT_EQ(error_of(engine, running, beyond), ErrorCode::invalid_argument);
  AllocateSlots endless;
  endless.num_new_tokens = std::numeric_limits<std::int64_t>::max();
  endless.num_lookahead_tokens = 1;
  EXPECT_EQ(error_of(engine, running, endless), ErrorCode::invalid_argument) << "sums must not overflow";
  AllocateSlots one;
  one.num_new_tokens = 1;
  running.request.num_in_flight_tokens = -1;
  EXPECT_EQ(error_of(engine, running, one), ErrorCode::invalid_argument) << "would release blocks that are still read";
  running.request.num_in_flight_tokens = 0;
  KVCacheBlocks foreign;
  foreign.groups = {{engine.pool().handle(BlockId{1})}, {}};
  AllocateSlots wrong_groups;
  wrong_groups.num_new_tokens = 1;
  wrong_groups.num_new_computed_tokens = 4;
  wrong_groups.new_computed_blocks = &foreign;
  EXPECT_EQ(error_of(engine, running, wrong_groups), ErrorCode::invalid_argument);
  EXPECT_EQ(engine.free_blocks(), 9U);
}

TEST(AllocateSlots, RefusesHitsForARequestThatHasBlocks) {
  Engine engine(plain(10));
  engine.warm(tokens(0, 8));
  Running running = engine.start(tokens(0, 12));
  PrefixHit hit = engine->get_computed_blocks(running.request);
  EXPECT_EQ(engine.prefill(running), 8);
  AllocateSlots again;
  again.num_new_tokens = 1;
  again.num_new_computed_tokens = hit.num_computed_tokens;
  again.new_computed_blocks = &hit.blocks;
  EXPECT_EQ(error_of(engine, running, again), ErrorCode::invalid_argument);
  EXPECT_EQ(engine.pool().ref_count(hit.blocks.groups[0][0].id), 1U);
}

TEST(AllocateSlots, LookaheadTokensGetSlotsAndAreNeverPublished) {
  Engine engine(plain(10));
  Running running = engine.start(tokens(0, 3));
  AllocateSlots drafts;
  drafts.num_lookahead_tokens = 2;
  EXPECT_EQ(engine.step(running, 3, drafts).new_blocks[0].size(), 2U);
  EXPECT_FALSE(engine.pool().primary_key(BlockId{1}).has_value());
}

TEST(AllocateSlots, SlotsEndAtTheMaximumLength) {
  EngineOptions options = plain(10);
  options.manager.max_model_len = 8;
  Engine engine(options);
  Running running = engine.start(tokens(0, 8));
  AllocateSlots drafts;
  drafts.num_lookahead_tokens = 5;
  EXPECT_EQ(engine.step(running, 8, drafts).new_blocks[0].size(), 2U);
}

TEST(AllocateSlots, FreeHitsCountAsNeeded) {
  Engine engine(plain(5));
  engine.warm(tokens(0, 12));
  Running next = engine.start(tokens(0, 20));  // 3 hits that are free, 2 new blocks: 5 of 4
  const Ids before = engine.free_order();
  EXPECT_EQ(engine.prefill(next), -1);
  EXPECT_EQ(engine.free_order(), before) << "a refusal changes nothing";
  for (const std::uint32_t id : before) EXPECT_EQ(engine.pool().ref_count(BlockId{id}), 0U);
  Running shorter = engine.start(tokens(0, 16));
  EXPECT_EQ(engine.prefill(shorter), 12);
}

TEST(AllocateSlots, WatermarkHoldsBackAdmissionsOnly) {
  EngineOptions options = plain(11);
  options.manager.watermark = 0.3;  // 3 of 11 blocks
  Engine engine(options);
  Running first = engine.start(tokens(0, 28));
  EXPECT_EQ(engine.prefill(first), 0);  // 7 + 3 <= 10
  Running second = engine.start(tokens(100, 4));
  EXPECT_EQ(engine.prefill(second), -1);
  AllocateSlots alone;
  alone.has_scheduled_reqs = false;
  EXPECT_EQ(engine.prefill(second, alone), 0) << "the first request of a step needs no reserve";
  EXPECT_EQ(engine.step(first, 8).outcome, AllocateOutcome::allocated) << "a running request neither";
}

TEST(AllocateSlots, ReservedBlocksStayFree) {
  Engine engine(plain(11));
  Running running = engine.start(tokens(0, 28));
  AllocateSlots arguments;
  arguments.reserved_blocks = 4;
  EXPECT_EQ(engine.prefill(running, arguments), -1);
  arguments.reserved_blocks = 3;
  EXPECT_EQ(engine.prefill(running, arguments), 0);
}

TEST(AllocateSlots, WholeSequenceGateRefusesAHopelessStart) {
  Engine engine(plain(6));
  Running running = engine.start(tokens(0, 40));
  AllocateSlots gate;
  gate.full_sequence_must_fit = true;
  EXPECT_EQ(engine.step(running, 8, gate).outcome, AllocateOutcome::no_capacity);
  EXPECT_EQ(engine.free_blocks(), 5U);
  EXPECT_EQ(engine.step(running, 8).outcome, AllocateOutcome::allocated);
}

TEST(AllocateSlots, WindowBlocksLeaveBeforeTheCapacityCheckAndStayGone) {
  Engine engine({.num_blocks = 5, .groups = {window(4, 4)}});
  Running running = engine.start(tokens(0, 16));
  running.request.num_in_flight_tokens = 16;
  engine.step(running, 16);
  EXPECT_EQ(engine.free_blocks(), 0U);
  running.request.num_in_flight_tokens = 0;
  AllocateSlots large;
  large.reserved_blocks = 3;
  EXPECT_EQ(engine.step(running, 4, large).outcome, AllocateOutcome::no_capacity);
  EXPECT_EQ(engine.free_blocks(), 3U);
  EXPECT_EQ(engine.step(running, 4).outcome, AllocateOutcome::allocated);
}

TEST(AllocateSlots, DelayedBlocksAreInvisibleUntilTheLoadIsDone) {
  Engine engine(plain(20));
  Running loading = engine.start(tokens(0, 13));
  AllocateSlots load;
  load.num_external_computed_tokens = 12;
  load.delay_cache_blocks = true;
  engine.step(loading, 0, load);
  EXPECT_EQ(engine.table(loading).size(), 3U);
  EXPECT_EQ(engine.hit(tokens(0, 13)), 0);
  engine->cache_blocks(loading.request, loading.sequence, 12);
  EXPECT_EQ(engine.hit(tokens(0, 13)), 12);
}

TEST(AllocateSlots, AllGroupsOrNone) {
  for (const bool state_first : {false, true}) {
    std::vector<KVCacheGroup> groups{full(4), mamba(4, MambaCacheMode::align)};
    if (state_first) std::swap(groups[0], groups[1]);
    Engine engine({.num_blocks = 8, .groups = groups});
    Running holder = engine.start(tokens(0, 20));
    ASSERT_EQ(engine.prefill(holder), 0);  // 5 + 1 of 7
    const Ids before = engine.free_order();
    for (int attempt = 0; attempt < 100; ++attempt) {
      Running refused = engine.start(tokens(500, 8));  // 2 + 1
      ASSERT_EQ(engine.prefill(refused), -1);
      ASSERT_EQ(engine.free_order(), before);
    }
    engine->free(holder.sequence);
    Running next = engine.start(tokens(500, 8));
    EXPECT_EQ(engine.prefill(next), 0);
  }
}

TEST(AllocateSlots, HitRecycledSinceTheLookUpIsLostWithoutATrace) {
  Engine engine(plain(6));
  engine.warm(tokens(0, 12));
  Running late = engine.start(tokens(0, 13));
  PrefixHit hit = engine->get_computed_blocks(late.request);
  ASSERT_EQ(hit.num_computed_tokens, 12);
  const Ids tables = values(hit.blocks.block_ids()[0]);
  const BlockId recycled{tables[2]};
  engine->evict_blocks(std::span(&recycled, 1));
  AllocateSlots arguments;
  arguments.num_new_tokens = 1;
  arguments.num_new_computed_tokens = 12;
  arguments.new_computed_blocks = &hit.blocks;
  const auto slots = engine->allocate_slots(late.request, late.sequence, arguments);
  ASSERT_TRUE(slots);
  EXPECT_EQ(slots->outcome, AllocateOutcome::prefix_lost);
  EXPECT_EQ(engine.free_blocks(), 5U);
  for (const std::uint32_t id : tables) EXPECT_EQ(engine.pool().ref_count(BlockId{id}), 0U);
  EXPECT_TRUE(engine.table(late).empty());
  EXPECT_EQ(engine.prefill(late), 8) << "look up again";
  engine.expect_sound();
}

TEST(AllocateSlots, PreemptedRequestFindsItsOwnBlocks) {
  Engine engine(plain(20));
  Running running = engine.start(tokens(0, 10));
  engine.prefill(running);
  for (TokenId token = 10; token < 15; ++token) engine.decode(running, token);
  engine->free(running.sequence);
  running.request.num_computed_tokens = 0;
  running.request.status = RequestStatus::preempted;
  EXPECT_EQ(engine.prefill(running), 12) << "generated tokens included";
}

TEST(AllocateSlots, QueryAnswersWhatTheCallWillDo) {
  Engine engine(plain(6));
  Running running = engine.start(tokens(0, 40));
  AllocateSlots arguments;
  arguments.num_new_tokens = 20;
  EXPECT_EQ(*engine->can_allocate_slots(running.request, running.sequence, arguments), AllocateOutcome::allocated);
  arguments.num_new_tokens = 21;
  EXPECT_EQ(*engine->can_allocate_slots(running.request, running.sequence, arguments), AllocateOutcome::no_capacity);
  EXPECT_EQ(engine->num_blocks_to_full_length(running.request, running.sequence), 10);
  engine.step(running, 8);
  EXPECT_EQ(engine->num_blocks_to_full_length(running.request, running.sequence), 8);
}

TEST(Sequence, GivesItsBlocksBackWhenItIsDestroyed) {
  Engine engine(plain(10));
  {
    Running running = engine.start(tokens(0, 9));
    engine.prefill(running);
    EXPECT_EQ(engine.free_blocks(), 6U);
    Sequence moved = std::move(running.sequence);
    EXPECT_EQ(engine.free_blocks(), 6U);
  }
  EXPECT_EQ(engine.free_blocks(), 9U);
}

TEST(Sequence, PublishingAfterTheEndIsWithoutEffect) {
  Engine engine(plain(10));
  Running running = engine.start(tokens(0, 12));
  AllocateSlots late;
  late.delay_cache_blocks = true;
  engine.step(running, 12, late);
  engine->free(running.sequence);
  engine->cache_blocks(running.request, running.sequence, 12);
  engine->free(running.sequence);
  EXPECT_EQ(engine.hit(tokens(0, 13)), 0);
  EXPECT_EQ(engine.free_blocks(), 9U);
}

TEST(ByRequest, SameAnswersThroughTheTable) {
  Engine engine(plain(20));
  Request request = engine.request(tokens(0, 10));
  AllocateSlots arguments;
  arguments.num_new_tokens = 10;
  const auto slots = engine->allocate_slots(request, arguments);
  ASSERT_TRUE(slots);
  EXPECT_EQ(values(engine->get_block_ids(request.id())[0]), (Ids{1, 2, 3}));
  EXPECT_EQ(engine->get_num_common_prefix_blocks(request.id()), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(engine->estimate_cached_tokens(request.id()), 8);
  engine->free(request);
  EXPECT_TRUE(engine->get_block_ids(request.id())[0].empty());
  EXPECT_EQ(engine->get_num_common_prefix_blocks("nobody"), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(engine.free_blocks(), 19U);
  EXPECT_TRUE(engine->pop_blocks_for_free(request).empty());
}

TEST(ByRequest, ARefusedNewcomerLeavesNoEntry) {
  Engine engine(plain(4));
  Request request = engine.request(tokens(0, 40));
  AllocateSlots arguments;
  arguments.num_new_tokens = 40;
  EXPECT_EQ(engine->allocate_slots(request, arguments)->outcome, AllocateOutcome::no_capacity);
  EXPECT_TRUE(engine->get_block_ids(request.id())[0].empty());
}

TEST(BlockIdQueries, AttentionTablesAreCutToTheComputedPart) {
  Engine engine({.num_blocks = 30, .groups = {full(4), mamba(4, MambaCacheMode::all)}});
  Running running = engine.start(tokens(0, 16));
  engine.prefill(running);
  const auto ids = engine->get_block_ids_for_computed_tokens(running.sequence, 5);
  EXPECT_EQ(ids[0].size(), 2U);
  EXPECT_EQ(ids[1].size(), 4U);
}

}  // namespace
}  // namespace kvpool::test
