// Failures reported from the field: wrong prefix hits and eviction, as seen through the manager.
#include <algorithm>

#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

RequestOptions adapter(const char* name) {
  RequestOptions options;
  options.lora_name = name;
  return options;
}

TEST(ManagerField, F013_AdaptersNeverHitEachOther) {
  Engine engine({.num_blocks = 40, .groups = {full(4)}});
  Running base = engine.start(tokens(0, 16));
  EXPECT_EQ(engine.prefill(base), 0);
  Running x = engine.start(tokens(0, 16), adapter("x"));
  EXPECT_EQ(engine.prefill(x), 0);
  Running y = engine.start(tokens(0, 16), adapter("y"));
  EXPECT_EQ(engine.prefill(y), 0);
  Running again = engine.start(tokens(0, 16), adapter("x"));
  EXPECT_EQ(engine.prefill(again), 12);
}

TEST(ManagerField, F017_ResetDuringARequestIsRefusedAndSaysSo) {
  EngineOptions options{.num_blocks = 10, .groups = {full(4)}};
  options.manager.enable_kv_cache_events = true;
  Engine engine(options);
  Running a = engine.start(tokens(0, 8));
  engine.prefill(a);
  EXPECT_FALSE(engine->reset_prefix_cache());
  engine->free(a.sequence);
  EXPECT_EQ(engine.hit(tokens(0, 9)), 8) << "nothing was changed";
  (void)engine->take_events();
  EXPECT_TRUE(engine->reset_prefix_cache());
  EXPECT_EQ(engine.hit(tokens(0, 9)), 0);
  EXPECT_EQ(engine->take_events().size(), 1U);
  EXPECT_EQ(engine.free_blocks(), 9U);
}

TEST(ManagerField, F018_RequestsThatNeedEveryTokenDoNotRead) {
  EngineOptions options{.num_blocks = 20, .groups = {full(16)}};
  options.manager.log_stats = true;
  Engine engine(options);
  engine.warm(tokens(0, 39));
  EXPECT_EQ(engine.hit(tokens(0, 39)), 32);
  RequestOptions logprobs;
  logprobs.skip_reading_prefix_cache = true;
  Running silent = engine.start(tokens(0, 39), logprobs);
  EXPECT_EQ(engine.prefill(silent), 0);
  engine->record_prefix_cache_stats(silent.request, 0);
  EXPECT_EQ(engine->make_prefix_cache_stats()->queries, 0);
  const BlockId own{engine.table(silent)[0]};
  EXPECT_TRUE(engine.pool().primary_key(own).has_value()) << "its blocks are published all the same";
  EXPECT_EQ(engine.hit(tokens(0, 39)), 32);
}

TEST(ManagerField, F022_KeysInEventsKeepTheirKind) {
  EngineOptions options{.num_blocks = 20, .groups = {full(4)}};
  options.manager.enable_kv_cache_events = true;
  Engine engine(options);
  RequestOptions image;
  image.mm_features = {{"7f3a", 0, 4}};
  engine.warm(tokens(0, 5), adapter("7f3a"));
  engine.warm(tokens(0, 5), image);
  std::vector<BlockStoredEvent> stored;
  for (const KVEvent& event : engine->take_events()) {
    if (const auto* store = std::get_if<BlockStoredEvent>(&event)) stored.push_back(*store);
  }
  ASSERT_EQ(stored.size(), 2U);
  EXPECT_EQ(stored[0].extra_keys, (std::vector<ExtraKeys>{ExtraKeys{LoraKey{"7f3a"}}}));
  EXPECT_EQ(stored[0].lora_name, "7f3a");
  EXPECT_EQ(stored[1].extra_keys, (std::vector<ExtraKeys>{ExtraKeys{MultimodalKey{"7f3a", 0}}}));
  EXPECT_FALSE(stored[1].lora_name.has_value());
  EXPECT_NE(stored[0].block_hashes, stored[1].block_hashes);
}

TEST(ManagerField, F023_TheLastBlockOfARequestGoesFirst) {
  for (int run = 0; run < 200; ++run) {
    Engine engine({.num_blocks = 4, .groups = {full(4)}});
    engine.warm(tokens(0, 12));
    engine.warm(tokens(700 + run, 3));
    ASSERT_EQ(engine.hit(tokens(0, 13)), 8);
  }
}

TEST(ManagerField, F024_HalfFilledBlocksDoNotPushUsefulOnesOut) {
  for (const FreeOrder order : {FreeOrder::split, FreeOrder::append}) {
    EngineOptions options{.num_blocks = 7, .groups = {full(4)}};
    options.manager.free_order = order;
    Engine engine(options);
    engine.warm(tokens(0, 18));
    for (TokenId i = 0; i < 10; ++i) engine.warm(tokens(1000 + 10 * i, 2));
    EXPECT_EQ(engine.hit(tokens(0, 19)) == 16, order == FreeOrder::split);
  }
}

TEST(ManagerField, F025_APromptThatCannotFinishIsNotStarted) {
  Engine engine({.num_blocks = 11, .groups = {full(16)}});
  Running r1 = engine.start(tokens(0, 96));
  ASSERT_EQ(engine.prefill(r1), 0);
  const Ids order = engine.free_order();
  Running r2 = engine.start(tokens(5000, 128));
  AllocateSlots gate;
  gate.full_sequence_must_fit = true;
  EXPECT_EQ(engine.step(r2, 32, gate).outcome, AllocateOutcome::no_capacity);
  EXPECT_EQ(engine.free_order(), order);
  EXPECT_EQ(engine.pool().stats().evicted_blocks, 0U);
  engine->free(r1.sequence);
  for (int chunk = 0; chunk < 4; ++chunk) {
    EXPECT_EQ(engine.step(r2, 32, gate).outcome, AllocateOutcome::allocated);
  }
  EXPECT_EQ(engine.table(r2).size(), 8U);
}

TEST(ManagerField, F026_ResumedRequestsDoNotInflateTheHitRate) {
  EngineOptions options{.num_blocks = 200, .groups = {full(4)}};
  options.manager.log_stats = true;
  Engine engine(options);
  for (TokenId prompt = 0; prompt < 20; ++prompt) {
    Running running = engine.start(tokens(1000 * prompt, 20));
    engine->record_prefix_cache_stats(running.request, engine.prefill(running));
    if (prompt % 4 != 0) continue;
    engine->free(running.sequence);
    running.request.num_computed_tokens = 0;
    running.request.num_preemptions = 1;
    running.request.status = RequestStatus::preempted;
    const std::int64_t hit = engine.prefill(running);
    EXPECT_EQ(hit, 16);
    engine->record_prefix_cache_stats(running.request, hit);
  }
  const auto stats = engine->make_prefix_cache_stats();
  EXPECT_EQ(stats->requests, 20);
  EXPECT_EQ(stats->queries, 400);
  EXPECT_EQ(stats->hits, 0);
  EXPECT_EQ(stats->preempted_requests, 5);
  EXPECT_EQ(stats->preempted_hits, 80);
}

TEST(ManagerField, F027_WindowChurnReusesItsOwnBlocks) {
  EngineOptions options{.num_blocks = 45, .groups = {full(4), window(4, 8)}};
  options.retention_interval = 0;
  Engine engine(options);
  engine.warm(tokens(0, 32));
  Running b = engine.start(tokens(5000, 80));
  for (int chunk = 0; chunk < 10; ++chunk) {
    ASSERT_EQ(engine.step(b, 8).outcome, AllocateOutcome::allocated);
    std::int64_t live = 0;
    for (const std::uint32_t id : engine.table(b, 1)) live += id != 0 ? 1 : 0;
    EXPECT_LE(live, 5);
  }
  engine->free(b.sequence);
  const PrefixHit hit = engine->get_computed_blocks(engine.request(tokens(0, 33)));
  EXPECT_GE(std::max(hit.num_computed_tokens, hit.shared_prefix_boundary), 28) << "A's prefix is still there";
}

TEST(ManagerField, F027_ASharedPrefixSurvivesManyRequests) {
  Engine engine({.num_blocks = 101, .groups = {full(4)}});
  for (TokenId i = 0; i < 50; ++i) {
    Running running = engine.start(tokens(0, 16) + tokens(10000 + 100 * i, 40));
    EXPECT_EQ(engine.prefill(running), i == 0 ? 0 : 16);
    engine->free(running.sequence);
  }
}

TEST(ManagerField, F028_APreemptedRequestFindsWhatItComputed) {
  Engine engine({.num_blocks = 7, .groups = {full(4)}});
  Running a = engine.start(tokens(0, 16));
  engine.prefill(a);
  engine->free(a.sequence);
  a.request.num_computed_tokens = 0;
  a.request.status = RequestStatus::preempted;
  EXPECT_EQ(engine.prefill(a), 12) << "resumed first, it computes one block again";
}

TEST(ManagerField, F029_ARequestThatCannotFitEvictsNothing) {
  EngineOptions options{.num_blocks = 9, .groups = {full(4)}};
  options.manager.enable_kv_cache_events = true;
  Engine engine(options);
  engine.warm(tokens(0, 32));
  (void)engine->take_events();
  const Ids order = engine.free_order();
  Running large = engine.start(tokens(5000, 36));
  EXPECT_EQ(engine.prefill(large), -1);
  EXPECT_EQ(engine.free_order(), order);
  EXPECT_TRUE(engine->take_events().empty());
  EXPECT_EQ(engine.hit(tokens(0, 33)), 32);
}

TEST(ManagerField, F030_ADivergenceFindsTheLastCommonBoundary) {
  Engine dense({.num_blocks = 60, .groups = {full(8), window(4, 16)}, .hash_block_size = 4});
  Running a = dense.start(tokens(0, 64));
  a.request.num_in_flight_tokens = 64;
  dense.step(a, 64);
  dense->free(a.sequence);
  EXPECT_EQ(dense.hit(tokens(0, 60) + tokens(900, 4)), 56);

  EngineOptions options{.num_blocks = 60, .groups = {full(8), window(4, 16)}, .hash_block_size = 4};
  options.retention_interval = 16;
  Engine sparse(options);
  Running b = sparse.start(tokens(0, 64));
  b.request.num_in_flight_tokens = 64;
  sparse.step(b, 64);
  sparse->free(b.sequence);
  const std::int64_t hit = sparse.hit(tokens(0, 60) + tokens(900, 4));
  EXPECT_GT(hit, 0) << "at least one boundary is left";
  EXPECT_LT(hit, 64);
  EXPECT_EQ(hit % 8, 0);
}

}  // namespace
}  // namespace kvpool::test
