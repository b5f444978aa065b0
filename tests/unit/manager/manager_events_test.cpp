// What the manager announces: order, parents, tokens, extra keys.
#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

EngineOptions with_events(std::vector<KVCacheGroup> groups, std::int64_t num_blocks = 60,
                          std::int64_t hash_block_size = 0) {
  EngineOptions options{.num_blocks = num_blocks, .groups = std::move(groups), .hash_block_size = hash_block_size};
  options.manager.enable_kv_cache_events = true;
  return options;
}

std::vector<BlockStoredEvent> stores(const std::vector<KVEvent>& events) {
  std::vector<BlockStoredEvent> list;
  for (const KVEvent& event : events) {
    if (const auto* stored = std::get_if<BlockStoredEvent>(&event)) list.push_back(*stored);
  }
  return list;
}

TEST(ManagerEvents, OneStorePerCallWithTheLogicalParent) {
  Engine engine(with_events({full(4)}));
  RequestOptions options;
  options.lora_name = "adapter";
  options.lora_id = 7;
  options.session_id = "s1";
  Running running = engine.start(tokens(0, 18), options);
  engine.step(running, 8);
  engine.step(running, 8);
  const std::vector<BlockStoredEvent> events = stores(engine->take_events());
  ASSERT_EQ(events.size(), 2U);
  const std::span<const BlockHash> hashes = running.request.block_hashes();
  EXPECT_EQ(events[0].block_hashes, (std::vector<BlockHash>{hashes[0], hashes[1]}));
  EXPECT_FALSE(events[0].parent_block_hash.has_value());
  EXPECT_EQ(events[0].token_ids, tokens(0, 8));
  EXPECT_EQ(events[1].parent_block_hash, hashes[1]);
  EXPECT_EQ(events[1].token_ids, tokens(8, 8));
  EXPECT_EQ(events[1].block_size, 4);
  EXPECT_EQ(events[1].lora_name, "adapter");
  EXPECT_EQ(events[1].lora_id, 7);
  EXPECT_EQ(events[1].session_id, "s1");
  EXPECT_EQ(events[1].group_idx, 0U);
  EXPECT_EQ(events[1].kv_cache_spec_kind, "full_attention");
  ASSERT_TRUE(events[1].extra_keys.has_value());
  EXPECT_EQ(events[1].extra_keys->size(), 2U);
  EXPECT_EQ(events[1].extra_keys->front(), (ExtraKeys{LoraKey{"adapter"}}));
}

TEST(ManagerEvents, AStoreIsSentEvenWhenNothingWasKept) {
  EngineOptions options = with_events({full(4), window(4, 4)});
  options.retention_interval = 0;
  Engine engine(options);
  Running running = engine.start(tokens(0, 40));
  engine.step(running, 8);
  const std::vector<BlockStoredEvent> events = stores(engine->take_events());
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].group_idx, 1U);
  EXPECT_EQ(events[1].kv_cache_spec_sliding_window, 4);
  EXPECT_TRUE(events[1].block_hashes.empty());
  EXPECT_EQ(events[1].token_ids, tokens(0, 8)) << "tokens of masked blocks are named all the same";
  EXPECT_FALSE(events[1].extra_keys.has_value());
}

TEST(ManagerEvents, PromotionRemovesBeforeItStores) {
  Engine engine(with_events({full(8), mamba(8, MambaCacheMode::align)}, 60, 4));
  Running running = engine.start(tokens(0, 12));
  engine.prefill(running);
  (void)engine->take_events();
  for (TokenId token = 12; token < 16; ++token) engine.decode(running, token);
  const std::vector<KVEvent> events = engine->take_events();
  const std::span<const BlockHash> hashes = running.request.block_hashes();
  ASSERT_GE(events.size(), 3U);
  const auto* removed = std::get_if<BlockRemovedEvent>(&events[0]);
  ASSERT_NE(removed, nullptr);
  EXPECT_EQ(removed->block_hashes, std::vector<BlockHash>{hashes[2]});
  const auto* promoted = std::get_if<BlockStoredEvent>(&events[1]);
  ASSERT_NE(promoted, nullptr);
  EXPECT_EQ(promoted->block_hashes, std::vector<BlockHash>{hashes[3]});
  EXPECT_EQ(promoted->parent_block_hash, hashes[1]);
  const auto* tail = std::get_if<BlockStoredEvent>(&events[2]);
  ASSERT_NE(tail, nullptr);
  EXPECT_EQ(tail->block_hashes, std::vector<BlockHash>{hashes[2]});
  EXPECT_EQ(tail->block_size, 4) << "one hash unit";
  EXPECT_EQ(tail->token_ids, tokens(8, 4));
}

TEST(ManagerEvents, ParentIsTheLogicalPredecessorAlsoAfterAHit) {
  Engine engine(with_events({full(4)}));
  engine.warm(tokens(0, 8));
  (void)engine->take_events();
  Running running = engine.start(tokens(0, 16));
  EXPECT_EQ(engine.prefill(running), 8);
  const std::vector<BlockStoredEvent> events = stores(engine->take_events());
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].parent_block_hash, running.request.block_hashes()[1]);
  EXPECT_EQ(events[0].token_ids, tokens(8, 8));
}

TEST(ManagerEvents, FullReportAnnouncesTheHitAgain) {
  Engine engine(with_events({full(4)}));
  engine.warm(tokens(0, 12));
  (void)engine->take_events();
  RequestOptions options;
  options.full_event_report = true;
  const Request request = engine.request(tokens(0, 14), options);
  EXPECT_EQ(engine->get_computed_blocks(request).num_computed_tokens, 12);
  const std::vector<BlockStoredEvent> events = stores(engine->take_events());
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].block_hashes.size(), 3U);
  EXPECT_FALSE(events[0].parent_block_hash.has_value());
  EXPECT_EQ(events[0].token_ids, tokens(0, 12));
  EXPECT_EQ(engine.pool().num_cached_keys(), 3U) << "nothing changed";
}

TEST(ManagerEvents, ImageKeysAreRelativeToTheBlock) {
  Engine engine(with_events({full(4)}));
  RequestOptions options;
  options.mm_features = {{"img", 2, 4}};
  Running running = engine.start(tokens(0, 13), options);
  engine.prefill(running);
  const std::vector<BlockStoredEvent> events = stores(engine->take_events());
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ((*events[0].extra_keys)[0], (ExtraKeys{MultimodalKey{"img", 2}}));
  EXPECT_EQ((*events[0].extra_keys)[1], (ExtraKeys{MultimodalKey{"img", -2}}));
  EXPECT_TRUE((*events[0].extra_keys)[2].empty());
}

TEST(ManagerEvents, SkippedDuplicatesAreNotAnnounced) {
  EngineOptions options = with_events({full(4)});
  options.manager.duplicates = DuplicatePolicy::skip;
  Engine engine(options);
  Running a = engine.start(tokens(0, 8));
  Running b = engine.start(tokens(0, 8));
  engine.step(a, 8);
  (void)engine->take_events();
  engine.step(b, 8);
  for (const BlockStoredEvent& event : stores(engine->take_events())) EXPECT_TRUE(event.block_hashes.empty());
  EXPECT_FALSE(engine.pool().primary_key(BlockId{engine.table(b)[0]}).has_value());
}

TEST(ManagerEvents, ResetIsAnnouncedOnceAndCounted) {
  EngineOptions options = with_events({full(4)});
  options.manager.log_stats = true;
  Engine engine(options);
  engine.warm(tokens(0, 8));
  (void)engine->take_events();
  EXPECT_TRUE(engine->reset_prefix_cache());
  const std::vector<KVEvent> events = engine->take_events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<AllBlocksClearedEvent>(events[0]));
  EXPECT_TRUE(engine->make_prefix_cache_stats()->reset);
  EXPECT_FALSE(engine->make_prefix_cache_stats()->reset);
}

}  // namespace
}  // namespace kvpool::test
