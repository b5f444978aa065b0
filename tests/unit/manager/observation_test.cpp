// What an operator sees: hit statistics, residency, zeroing lists, deferred frees, encoder outputs.
#include <algorithm>

#include "kvpool/manager/caching_metrics.hpp"
#include "kvpool/manager/deferred_frees.hpp"
#include "kvpool/manager/encoder_cache_manager.hpp"
#include "kvpool/manager/residency_metrics.hpp"
#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

using namespace std::chrono_literals;

PrefixCacheStats observed(std::int64_t requests, std::int64_t queries, std::int64_t hits, bool reset = false) {
  PrefixCacheStats stats;
  stats.reset = reset;
  stats.requests = requests;
  stats.queries = queries;
  stats.hits = hits;
  return stats;
}

TEST(CachingMetrics, ForgetsWholeObservationsBeyondTheLimit) {
  CachingMetrics metrics(5);
  EXPECT_EQ(metrics.hit_rate(), 0.0);
  metrics.observe(observed(1, 20, 9));
  EXPECT_DOUBLE_EQ(metrics.hit_rate(), 0.45);
  metrics.observe(observed(4, 80, 16));
  EXPECT_DOUBLE_EQ(metrics.hit_rate(), 0.25);
  metrics.observe(observed(1, 10, 2));
  EXPECT_DOUBLE_EQ(metrics.hit_rate(), 0.2);
  EXPECT_EQ(metrics.requests(), 5);
  EXPECT_EQ(metrics.queries(), 90);
  EXPECT_EQ(metrics.hits(), 18);
  metrics.observe(observed(11, 20, 10));
  EXPECT_DOUBLE_EQ(metrics.hit_rate(), 0.5);
  EXPECT_EQ(metrics.requests(), 11);
  metrics.observe(observed(0, 7, 7));
  EXPECT_EQ(metrics.queries(), 20) << "idle intervals do not count";
  metrics.observe(observed(0, 0, 0, true));
  EXPECT_TRUE(metrics.empty());
}

TEST(PrefixCacheStats, ResumedLookUpsAreCountedApart) {
  EngineOptions options{.num_blocks = 20, .groups = {full(4)}};
  options.manager.log_stats = true;
  Engine engine(options);
  Request first = engine.request(tokens(0, 12));
  engine->record_prefix_cache_stats(first, 0);
  first.num_preemptions = 1;
  engine->record_prefix_cache_stats(first, 8);
  RequestOptions silent;
  silent.skip_reading_prefix_cache = true;
  engine->record_prefix_cache_stats(engine.request(tokens(0, 12), silent), 0);
  const auto stats = engine->make_prefix_cache_stats();
  ASSERT_TRUE(stats.has_value());
  EXPECT_EQ(stats->requests, 1);
  EXPECT_EQ(stats->queries, 12);
  EXPECT_EQ(stats->hits, 0);
  EXPECT_EQ(stats->preempted_requests, 1);
  EXPECT_EQ(stats->preempted_queries, 12);
  EXPECT_EQ(stats->preempted_hits, 8);
  EXPECT_EQ(engine->make_prefix_cache_stats()->requests, 0) << "taken";
  EXPECT_FALSE(Engine({.num_blocks = 20, .groups = {full(4)}})->make_prefix_cache_stats().has_value());
}

TEST(EstimateCachedTokens, IsTheShortestOfAllGroups) {
  Engine engine({.num_blocks = 40, .groups = {full(8), window(4, 8)}, .hash_block_size = 4});
  Running running = engine.start(tokens(0, 22));
  EXPECT_EQ(engine->estimate_cached_tokens(running.sequence), 0);
  running.request.num_in_flight_tokens = 22;
  engine.step(running, 22);
  EXPECT_EQ(engine->estimate_cached_tokens(running.sequence), 16);
}

// --- residency ------------------------------------------------------------------------------------------------

TEST(ResidencyMetrics, FollowsASampledBlockToItsEnd) {
  std::chrono::nanoseconds now = 0s;
  ResidencyMetrics metrics(1.0, [&now] { return now; });
  metrics.attach(10);
  metrics.on_block_allocated(BlockId{3}, true);
  for (int second = 1; second <= 6; ++second) {
    now = std::chrono::seconds(second * second);
    metrics.on_block_accessed(BlockId{3});
  }
  now = 40s;
  metrics.on_block_evicted(BlockId{3});
  metrics.on_block_evicted(BlockId{3});
  const std::vector<ResidencyRecord> records = metrics.drain();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_DOUBLE_EQ(records[0].lifetime_seconds, 40.0);
  EXPECT_DOUBLE_EQ(records[0].idle_seconds, 4.0);
  EXPECT_EQ(records[0].reuse_gap_seconds, (std::vector<double>{7.0, 9.0, 11.0})) << "of the last four reuses";
  EXPECT_TRUE(metrics.drain().empty());
}

TEST(ResidencyMetrics, ReallocationEndsTheFormerLifeWithCachingOn) {
  std::chrono::nanoseconds now = 0s;
  ResidencyMetrics metrics(1.0, [&now] { return now; });
  metrics.attach(10);
  metrics.on_block_allocated(BlockId{1}, true);
  now = 5s;
  metrics.on_block_allocated(BlockId{1}, true);
  EXPECT_EQ(metrics.drain().size(), 1U);
  now = 6s;
  metrics.on_block_allocated(BlockId{1}, false);
  EXPECT_TRUE(metrics.drain().empty()) << "without caching a new life just begins";
  now = 9s;
  metrics.on_block_evicted(BlockId{1});
  EXPECT_DOUBLE_EQ(metrics.drain()[0].lifetime_seconds, 3.0);
  metrics.on_block_allocated(BlockId{2}, true);
  metrics.reset();
  metrics.on_block_evicted(BlockId{2});
  EXPECT_TRUE(metrics.drain().empty());
}

TEST(ResidencyMetrics, SamplesAboutTheRate) {
  ResidencyMetrics metrics(0.1, {}, 1);
  metrics.attach(10001);
  for (std::uint32_t id = 1; id <= 10000; ++id) metrics.on_block_allocated(BlockId{id}, true);
  for (std::uint32_t id = 1; id <= 10000; ++id) metrics.on_block_evicted(BlockId{id});
  const std::size_t sampled = metrics.drain().size();
  EXPECT_GT(sampled, 850U);
  EXPECT_LT(sampled, 1150U);
  EXPECT_THROW(ResidencyMetrics(0.0), std::invalid_argument);
  EXPECT_THROW(ResidencyMetrics(1.5), std::invalid_argument);
}

TEST(ResidencyMetrics, IsFedByTheManager) {
  std::chrono::nanoseconds now = 0s;
  const auto metrics = std::make_shared<ResidencyMetrics>(1.0, [&now] { return now; });
  EngineOptions options{.num_blocks = 4, .groups = {full(4)}};
  options.manager.residency_metrics = metrics;
  Engine engine(options);
  engine.warm(tokens(0, 12));
  now = 2s;
  Running reader = engine.start(tokens(0, 8));
  EXPECT_EQ(engine.prefill(reader), 4);  // reuses block 1, recycles block 3
  ASSERT_EQ(metrics->drain().size(), 1U);
  const BlockId first{engine.table(reader)[0]};
  now = 7s;
  engine->evict_blocks(std::span(&first, 1));
  const std::vector<ResidencyRecord> records = metrics->drain();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_DOUBLE_EQ(records[0].lifetime_seconds, 7.0);
  EXPECT_DOUBLE_EQ(records[0].idle_seconds, 5.0);
}

TEST(ResidencyMetrics, AnOfferToAConnectorIsAnAccess) {
  std::chrono::nanoseconds now = 0s;
  const auto metrics = std::make_shared<ResidencyMetrics>(1.0, [&now] { return now; });
  EngineOptions options{.num_blocks = 60, .groups = {full(8), mamba(8, MambaCacheMode::align)}, .hash_block_size = 4};
  options.manager.residency_metrics = metrics;
  Engine engine(options);
  Running owner = engine.start(tokens(0, 12));
  engine.step(owner, 12);
  engine.decode(owner, 50);
  now = 3s;
  const auto offers = engine->take_partial_tail_offloads(owner.sequence);
  ASSERT_EQ(offers.size(), 1U);
  now = 10s;
  engine->evict_blocks(std::span(&offers[0].block, 1));
  const std::vector<ResidencyRecord> records = metrics->drain();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_DOUBLE_EQ(records[0].idle_seconds, 7.0);
  for (const BlockCopy& copy : engine->take_block_copies()) {
    engine.pool().free_blocks(std::vector{copy.source, copy.target});
  }
}

// --- zeroing --------------------------------------------------------------------------------------------------

EngineOptions zeroing() {
  EngineOptions options{.num_blocks = 60, .groups = {full(8), mamba(8, MambaCacheMode::align)}, .hash_block_size = 4};
  options.manager.collect_blocks_to_zero = true;
  return options;
}

TEST(Zeroing, NewAttentionBlocksAreListedInOrder) {
  Engine engine(zeroing());
  EXPECT_TRUE(engine->needs_kv_cache_zeroing());
  Running running = engine.start(tokens(0, 20));
  engine.prefill(running);
  EXPECT_EQ(values(engine->take_new_block_ids()), engine.table(running, 0)) << "states are not zeroed";
  EXPECT_TRUE(engine->take_new_block_ids().empty());
  EXPECT_EQ(values(engine->get_zeroing_block_ids_in_range(running.sequence, 8, 17)),
            (Ids{engine.table(running, 0)[1], engine.table(running, 0)[2]}));
  engine->record_blocks_for_zeroing(running.sequence, 8);
  EXPECT_EQ(engine->take_new_block_ids().size(), 2U);
}

TEST(Zeroing, AttentionCopyTargetsAreListedStateTargetsAreNot) {
  Engine engine(zeroing());
  engine.warm(tokens(0, 12));
  (void)engine->take_new_block_ids();
  Running reader = engine.start(tokens(0, 15));
  EXPECT_EQ(engine.prefill(reader), 12);
  const std::vector<BlockCopy> copies = engine->take_block_copies();
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(values(engine->take_new_block_ids()), (Ids{copies[0].target.value()}));
  for (const BlockCopy& copy : copies) engine.pool().free_blocks(std::vector{copy.source, copy.target});
}

TEST(Zeroing, OneElementTypeNeedsNone) {
  EngineOptions options{.num_blocks = 60, .groups = {full(8), window(8, 8)}};
  options.manager.collect_blocks_to_zero = true;
  Engine engine(options);
  EXPECT_FALSE(engine->needs_kv_cache_zeroing());
  engine.warm(tokens(0, 20));
  EXPECT_TRUE(engine->take_new_block_ids().empty());
  std::get<SlidingWindowSpec>(options.groups[1].spec).shape.dtype = DType::fp8_e4m3;
  EXPECT_TRUE(Engine(options)->needs_kv_cache_zeroing());
}

// --- deferred frees -------------------------------------------------------------------------------------------

TEST(DeferredFrees, BlocksWaitForTheStepsInFlight) {
  Engine engine({.num_blocks = 9, .groups = {full(4)}});
  DeferredFrees frees(engine.pool());
  Running a = engine.start(tokens(0, 10));
  engine.prefill(a);
  frees.step_scheduled();
  const std::int64_t last = frees.step_scheduled();
  frees.step_processed();
  frees.free(engine->pop_blocks_for_free(a.sequence), last);
  EXPECT_TRUE(engine.table(a).empty()) << "bookkeeping ends at once";
  EXPECT_EQ(frees.num_waiting(), 3U);
  EXPECT_EQ(engine.free_blocks(), 5U);
  frees.step_processed();
  EXPECT_EQ(frees.num_waiting(), 0U);
  EXPECT_EQ(engine.free_order(), (Ids{3, 4, 5, 6, 7, 8, 2, 1}));
  Running b = engine.start(tokens(50, 5));
  engine.prefill(b);
  frees.free(engine->pop_blocks_for_free(b.sequence), last);
  EXPECT_EQ(engine.free_blocks(), 8U) << "nothing in flight: at once";
}

TEST(DeferredFrees, StopAtTheFirstUnmetFenceAndFreeCopiesSourceFirst) {
  Engine engine({.num_blocks = 9, .groups = {full(4)}});
  std::vector<BlockId> blocks(4);
  ASSERT_TRUE(engine.pool().get_new_blocks(blocks));
  DeferredFrees frees(engine.pool());
  frees.step_scheduled();
  const std::vector<BlockCopy> copies{{blocks[0], blocks[1]}};
  frees.free_after_copy(copies);          // waits for step 2
  frees.free({blocks[2], blocks[3]}, 1);  // waits for step 1, behind the copies
  frees.step_processed();
  EXPECT_EQ(engine.free_blocks(), 4U);
  frees.step_scheduled();
  frees.step_processed();
  EXPECT_EQ(engine.free_blocks(), 8U);
  EXPECT_EQ(engine.free_order(), (Ids{4, 3, 1, 2, 5, 6, 7, 8}));
}

// --- encoder outputs ------------------------------------------------------------------------------------------

Request with_images(Engine& engine, std::vector<MultimodalFeature> features) {
  RequestOptions options;
  options.mm_features = std::move(features);
  return engine.request(tokens(0, 100), options);
}

TEST(EncoderCache, SharesByContentAndEvictsTheOldestUnreferenced) {
  Engine engine({.num_blocks = 4, .groups = {full(4)}});
  EncoderCacheManager cache(20);
  const Request a = with_images(engine, {{"x", 0, 8}, {"y", 10, 8}});
  const Request b = with_images(engine, {{"x", 0, 8}});
  const Request c = with_images(engine, {{"z", 0, 10}});
  EXPECT_FALSE(cache.check_and_update(a, 0));
  EXPECT_TRUE(cache.can_allocate(a, 0, 100, 0));
  cache.allocate(a, 0);
  EXPECT_TRUE(cache.can_allocate(a, 1, 100, 0));
  cache.allocate(a, 1);
  EXPECT_EQ(cache.num_free(), 4);
  EXPECT_TRUE(cache.check_and_update(b, 0));
  EXPECT_FALSE(cache.can_allocate(c, 0, 100, 0)) << "everything is referenced";
  EXPECT_FALSE(cache.can_allocate(c, 0, 9, 0)) << "above the compute budget";
  cache.free(a);
  EXPECT_EQ(cache.num_freeable(), 12) << "y only; x is held by b";
  EXPECT_FALSE(cache.can_allocate(c, 0, 100, 4)) << "together with what is scheduled already";
  EXPECT_TRUE(cache.can_allocate(c, 0, 100, 0));
  EXPECT_EQ(cache.num_free(), 12);
  cache.allocate(c, 0);
  EXPECT_EQ(cache.take_freed(), std::vector<std::string>{"y"});
  EXPECT_TRUE(cache.take_freed().empty());
  EXPECT_EQ(cache.cached_inputs(c), (std::set<std::size_t>{0}));
  cache.reset();
  EXPECT_EQ(cache.num_free(), 20);
  EXPECT_FALSE(cache.check_and_update(b, 0));
}

TEST(EncoderCache, UnreferencedOutputsAreRevived) {
  Engine engine({.num_blocks = 4, .groups = {full(4)}});
  EncoderCacheManager cache(20);
  const Request a = with_images(engine, {{"x", 0, 8}});
  const Request b = with_images(engine, {{"x", 0, 8}, {"w", 20, 12}});
  cache.allocate(a, 0);
  cache.free_encoder_input(a, 0);
  cache.free_encoder_input(a, 0);
  EXPECT_EQ(cache.num_freeable(), 20);
  EXPECT_TRUE(cache.check_and_update(b, 0));
  EXPECT_EQ(cache.num_freeable(), 12);
  EXPECT_TRUE(cache.can_allocate(b, 1, 100, 0));
  cache.allocate(b, 1);
  cache.free(b);
  EXPECT_EQ(cache.num_freeable(), 20);
  EXPECT_EQ(cache.num_free(), 0) << "outputs stay until room is needed";
}

TEST(EncoderCache, EvictedContentThatCameBackIsNotReported) {
  Engine engine({.num_blocks = 4, .groups = {full(4)}});
  EncoderCacheManager cache(10);
  const Request a = with_images(engine, {{"x", 0, 8}});
  const Request b = with_images(engine, {{"y", 0, 8}});
  cache.allocate(a, 0);
  cache.free(a);
  EXPECT_TRUE(cache.can_allocate(b, 0, 100, 0));
  cache.allocate(a, 0);
  EXPECT_TRUE(cache.take_freed().empty());
}

TEST(EncoderCache, EncoderDecoderModelsKeepNothing) {
  Engine engine({.num_blocks = 4, .groups = {full(4)}});
  EncoderDecoderCacheManager cache(20);
  const Request a = with_images(engine, {{"x", 0, 12}});
  const Request b = with_images(engine, {{"y", 0, 12}});
  EXPECT_TRUE(cache.can_allocate(a, 0, 100, 0));
  cache.allocate(a, 0);
  EXPECT_FALSE(cache.can_allocate(b, 0, 100, 0));
  EXPECT_TRUE(cache.take_freed().empty());
  EXPECT_EQ(cache.take_freed(), std::vector<std::string>{"x"}) << "in the second call after the step";
  cache.free(a);
  EXPECT_EQ(cache.num_free(), 20);
}

TEST(EncoderCache, BudgetNeverBelowTheLargestItem) {
  EXPECT_EQ(encoder_budget(100, 200, 150).compute, 150);
  EXPECT_EQ(encoder_budget(100, 200, 150).cache, 200);
}

}  // namespace
}  // namespace kvpool::test
