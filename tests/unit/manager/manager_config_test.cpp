// Configurations that contradict themselves are refused by the name of the key.
#include <functional>

#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

struct Parts {
  KVCacheConfig config;
  KVCacheManagerOptions options;
};

Parts valid() {
  Parts setup;
  setup.config.num_blocks = 20;
  setup.config.groups = {full(4), window(4, 8)};
  setup.options.max_model_len = 100;
  setup.options.scheduler_block_size = 4;
  setup.options.hash_block_size = 4;
  return setup;
}

struct Refusal {
  const char* name;
  std::string key;
  std::function<void(Parts&)> spoil;
};

class ManagerConfig : public testing::TestWithParam<Refusal> {};

TEST_P(ManagerConfig, IsRefusedByName) {
  Parts setup = valid();
  ASSERT_TRUE(KVCacheManager::create(setup.config, setup.options));
  GetParam().spoil(setup);
  const auto manager = KVCacheManager::create(setup.config, setup.options);
  ASSERT_FALSE(manager);
  EXPECT_EQ(manager.error().message.rfind(GetParam().key + ":", 0), 0U) << manager.error().message;
}

KVCacheGroup encoder_only() { return {{}, EncoderOnlyAttentionSpec{}, false}; }

INSTANTIATE_TEST_SUITE_P(
    Keys, ManagerConfig,
    testing::Values(
        Refusal{"blocks", "num_blocks", [](Parts& s) { s.config.num_blocks = 0; }},
        Refusal{"huge_pool", "num_blocks", [](Parts& s) { s.config.num_blocks = std::int64_t{1} << 40; }},
        Refusal{"length", "max_model_len", [](Parts& s) { s.options.max_model_len = 0; }},
        Refusal{"unit", "hash_block_size", [](Parts& s) { s.options.hash_block_size = 3; }},
        Refusal{"unit_of_group", "hash_block_size",
                [](Parts& s) {
                  s.options.hash_block_size = 8;
                  s.options.scheduler_block_size = 8;
                }},
        Refusal{"unit_of_only_group", "hash_block_size",
                [](Parts& s) {
                  s.config.groups.pop_back();
                  s.options.hash_block_size = 2;
                }},
        Refusal{"common_multiple", "scheduler_block_size",
                [](Parts& s) {
                  s.options.scheduler_block_size = 6;
                  s.options.hash_block_size = 2;
                }},
        Refusal{"watermark", "watermark", [](Parts& s) { s.options.watermark = 1.0; }},
        Refusal{"in_flight", "max_in_flight_tokens", [](Parts& s) { s.options.max_in_flight_tokens = -1; }},
        Refusal{"interval", "retention_interval", [](Parts& s) { s.config.prefix_cache_retention_interval = 6; }},
        Refusal{"negative_interval", "retention_interval",
                [](Parts& s) { s.config.prefix_cache_retention_interval = -4; }},
        Refusal{"interval_without_window", "retention_interval",
                [](Parts& s) {
                  s.config.groups.pop_back();
                  s.config.prefix_cache_retention_interval = 4;
                }},
        Refusal{"prefill_lookahead", "num_prefill_lookahead",
                [](Parts& s) {
                  s.options.use_eagle = true;
                  s.options.num_prefill_lookahead = 5;
                }},
        Refusal{"context_parallel_window", "dcp_world_size",
                [](Parts& s) {
                  s.options.dcp_world_size = 2;
                  s.options.scheduler_block_size = 8;
                }},
        Refusal{"window", "sliding_window", [](Parts& s) { s.config.groups[1] = window(4, 0); }},
        Refusal{"chunk", "attention_chunk_size", [](Parts& s) { s.config.groups[1] = chunked(4, 0); }},
        Refusal{"block", "block_size", [](Parts& s) { s.config.groups[1] = window(0, 4); }},
        Refusal{"chunk_with_drafts", "use_eagle",
                [](Parts& s) {
                  s.config.groups[1] = chunked(4, 8);
                  s.options.use_eagle = true;
                }},
        Refusal{"cached_cross_attention", "enable_caching", [](Parts& s) { s.config.groups[1] = cross(4); }},
        Refusal{"no_group", "groups", [](Parts& s) { s.config.groups.clear(); }}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(ManagerConfigLimits, ZeroIntervalNeedsNoWindow) {
  Parts setup = valid();
  setup.config.groups.pop_back();
  setup.config.prefix_cache_retention_interval = 0;
  EXPECT_TRUE(KVCacheManager::create(setup.config, setup.options));
}

TEST(ManagerConfigLimits, EncoderOnlyLayersHaveNoManager) {
  Parts setup = valid();
  setup.config.groups.push_back(encoder_only());
  const auto manager = KVCacheManager::create(setup.config, setup.options);
  ASSERT_FALSE(manager);
  EXPECT_EQ(manager.error().code, ErrorCode::unsupported);
}

TEST(ManagerConfigLimits, UniformGroupsFollowTheirLayers) {
  UniformTypeSpec uniform;
  SlidingWindowSpec layer;
  layer.block_size = 4;
  layer.sliding_window = 8;
  uniform.layers = {{"a", layer}, {"b", layer}};
  EngineOptions options{.num_blocks = 30, .groups = {KVCacheGroup{{"a", "b"}, uniform, false}}};
  options.hash_block_size = 4;
  Engine engine(options);
  Running running = engine.start(tokens(0, 32));
  engine.prefill(running);
  engine.decode(running, 32);
  EXPECT_EQ(engine.table(running)[0], 0U) << "a window";
}

}  // namespace
}  // namespace kvpool::test
