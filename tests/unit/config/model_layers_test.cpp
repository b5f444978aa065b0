// Published models: which layers keep what.
#include "tools/plan/model_layers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "kvpool/config/memory_plan.hpp"
#include "plan_fixture.hpp"

namespace kvpool {
namespace {

using namespace test;
using tools::KvDType;
using tools::ShardOptions;

// Layers by the name of their spec.
std::map<std::string, int> census(const std::string& model, const ShardOptions& options = {}) {
  std::map<std::string, int> counts;
  for (const auto& stage : layers_of(model_facts(model), options).stages) {
    for (const NamedLayer& layer : stage) ++counts[std::string(spec_name(to_group_spec(layer.spec)))];
  }
  return counts;
}

std::vector<KVCacheGroup> groups_of(const std::string& model, const ShardOptions& options = {}) {
  auto groups = get_kv_cache_groups(layers_of(model_facts(model), options).stages.front());
  EXPECT_TRUE(groups.ok()) << (groups.ok() ? "" : groups.error().message);
  return groups ? *groups : std::vector<KVCacheGroup>{};
}

ShardOptions ranks(std::int64_t tensor_parallel) {
  ShardOptions options;
  options.tensor_parallel = tensor_parallel;
  return options;
}

std::int64_t first_page(const std::string& model, const ShardOptions& options = {}) {
  return page_size_bytes(to_group_spec(layers_of(model_facts(model), options).stages[0][0].spec));
}

using Census = std::map<std::string, int>;

TEST(Models, Llama2At13BIsTheCheckValue) {
  EXPECT_EQ(first_page("llama-2-13b"), 327'680);
  EXPECT_EQ(bytes_per_block(groups_of("llama-2-13b")), 13'107'200);
}

TEST(Models, DenseModelsKeepEverythingInOneGroup) {
  const std::vector<std::pair<std::string, int>> dense = {
      {"llama-3.1-8b", 32},  {"llama-3.1-70b", 80},   {"llama-3.1-405b", 126}, {"qwen2.5-7b", 28}, {"qwen3-32b", 64},
      {"qwen3-30b-a3b", 48}, {"mistral-7b-v0.3", 32}, {"mixtral-8x7b", 32},    {"phi-4", 40},      {"glm-4.5", 92}};
  for (const auto& [model, layers] : dense) {
    EXPECT_EQ(census(model), (Census{{"full_attention", layers}})) << model;
    EXPECT_EQ(groups_of(model).size(), 1U) << model;
  }
}

TEST(Models, BytesPerTokenOfDenseModels) {
  EXPECT_EQ(bytes_per_block(groups_of("llama-3.1-8b")) / 16, 131'072);
  EXPECT_EQ(bytes_per_block(groups_of("llama-3.1-70b")) / 16, 327'680);
  EXPECT_EQ(bytes_per_block(groups_of("llama-3.1-405b")) / 16, 516'096);
  EXPECT_EQ(bytes_per_block(groups_of("qwen2.5-7b")) / 16, 57'344);
  EXPECT_EQ(bytes_per_block(groups_of("qwen3-32b")) / 16, 262'144);
  EXPECT_EQ(bytes_per_block(groups_of("qwen3-30b-a3b")) / 16, 98'304);
  EXPECT_EQ(bytes_per_block(groups_of("mixtral-8x7b")) / 16, 131'072);
  EXPECT_EQ(bytes_per_block(groups_of("phi-4")) / 16, 204'800);
  EXPECT_EQ(bytes_per_block(groups_of("glm-4.5")) / 16, 376'832);
}

TEST(Models, MistralV01HasWindowsOnly) {
  EXPECT_EQ(census("mistral-7b-v0.1"), (Census{{"sliding_window", 32}}));
  const auto groups = groups_of("mistral-7b-v0.1");
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(std::get<SlidingWindowSpec>(groups[0].spec).sliding_window, 4096);
}

TEST(Models, Gemma2AlternatesFromAWindow) {
  EXPECT_EQ(census("gemma-2-9b"), (Census{{"full_attention", 21}, {"sliding_window", 21}}));
  const auto layers = layers_of(model_facts("gemma-2-9b")).stages[0];
  EXPECT_TRUE(std::holds_alternative<SlidingWindowSpec>(layers[0].spec));
  EXPECT_TRUE(std::holds_alternative<FullAttentionSpec>(layers[1].spec));
  EXPECT_EQ(groups_of("gemma-2-9b").size(), 2U);
}

TEST(Models, Gemma3HasOneFullLayerInSix) {
  EXPECT_EQ(census("gemma-3-27b"), (Census{{"full_attention", 10}, {"sliding_window", 52}}));
  const auto groups = groups_of("gemma-3-27b");
  EXPECT_EQ(groups.size(), 1U + 6U);  // 52 windows in groups of at most 10
  EXPECT_EQ(page_size_bytes(groups[0].spec), 16 * 16 * 2 * 128 * 2);
}

TEST(Models, Llama4HasOneGlobalLayerInFour) {
  EXPECT_EQ(census("llama-4-scout"), (Census{{"full_attention", 12}, {"chunked_local_attention", 36}}));
  EXPECT_EQ(groups_of("llama-4-scout").size(), 4U);
}

TEST(Models, GptOssAlternatesAndItsSinksKeepNothing) {
  EXPECT_EQ(census("gpt-oss-20b"), (Census{{"full_attention", 12}, {"sliding_window", 12}}));
  EXPECT_EQ(census("gpt-oss-120b"), (Census{{"full_attention", 18}, {"sliding_window", 18}}));
  EXPECT_EQ(first_page("gpt-oss-120b"), 16 * 8 * 2 * 64 * 2);
}

TEST(Models, DeepSeekKeepsOneLatentVectorOnEveryRank) {
  const std::vector<std::pair<std::string, int>> models = {
      {"deepseek-v2", 60}, {"deepseek-v3", 61}, {"deepseek-r1", 61}, {"kimi-k2", 61}};
  for (const auto& [model, layers] : models) {
    EXPECT_EQ(census(model), (Census{{"mla_attention", layers}})) << model;
    EXPECT_EQ(first_page(model), 16 * 576 * 2) << model;
    EXPECT_EQ(first_page(model, ranks(8)), 16 * 576 * 2) << model;
  }
}

TEST(Models, Qwen3NextNeedsBlocksOf544Tokens) {
  EXPECT_EQ(census("qwen3-next-80b-a3b"), (Census{{"full_attention", 12}, {"mamba", 36}}));
  for (const std::int64_t tensor_parallel : {1, 2}) {
    const auto layers = layers_of(model_facts("qwen3-next-80b-a3b"), ranks(tensor_parallel));
    EXPECT_EQ(layers.block_size, 544);
    ASSERT_FALSE(layers.warnings.empty());
  }
  EXPECT_EQ(layers_of(model_facts("qwen3-next-80b-a3b"), ranks(4)).block_size,
            272);  // KV heads are copied, states split
  const auto groups = groups_of("qwen3-next-80b-a3b");
  ASSERT_EQ(groups.size(), 4U);
  for (const KVCacheGroup& group : groups) EXPECT_EQ(page_size_bytes(group.spec), 544 * 2048);
}

TEST(Models, Qwen3NextStateHasConvolutionAndRecurrentPart) {
  const auto layers = layers_of(model_facts("qwen3-next-80b-a3b"), ranks(2)).stages[0];
  const auto& mamba = std::get<MambaSpec>(layers[0].spec);
  ASSERT_EQ(mamba.states.size(), 2U);
  EXPECT_EQ(mamba.states[0].shape, (std::vector<std::int64_t>{4096, 3}));
  EXPECT_EQ(mamba.states[1].shape, (std::vector<std::int64_t>{16, 128, 128}));
}

TEST(Models, JambaAttendsInEveryEighthLayer) {
  EXPECT_EQ(census("jamba-v0.1"), (Census{{"full_attention", 4}, {"mamba", 28}}));
  const auto layers = layers_of(model_facts("jamba-v0.1"));
  EXPECT_TRUE(std::holds_alternative<FullAttentionSpec>(layers.stages[0][4].spec));
  EXPECT_EQ(layers.block_size, 80);  // 311,296 bytes of state, 4096 bytes a token
}

TEST(Models, NemotronHFollowsItsPattern) {
  EXPECT_EQ(census("nemotron-h-8b"), (Census{{"full_attention", 4}, {"mamba", 24}}));
  const auto layers = layers_of(model_facts("nemotron-h-8b")).stages[0];
  const auto& mamba = std::get<MambaSpec>(layers[0].spec);
  EXPECT_EQ(mamba.states[0].shape, (std::vector<std::int64_t>{128 * 64 + 2 * 8 * 128, 3}));
  EXPECT_EQ(mamba.states[1].shape, (std::vector<std::int64_t>{128, 64, 128}));
}

TEST(Models, Mamba2KeepsStatesOnly) {
  EXPECT_EQ(census("mamba-codestral-7b"), (Census{{"mamba", 64}}));
  EXPECT_EQ(layers_of(model_facts("mamba-codestral-7b")).block_size, 16);
  ShardOptions none;
  none.mamba_mode = MambaCacheMode::none;
  EXPECT_EQ(max_blocks_per_request(groups_of("mamba-codestral-7b", none)[0].spec, {}), 1);
}

TEST(Models, WhisperDecodersKeepTheirOwnAndTheEncodersTokens) {
  EXPECT_EQ(census("whisper-large-v3"), (Census{{"full_attention", 32}, {"cross_attention", 32}}));
  const auto layers = layers_of(model_facts("whisper-large-v3"));
  EXPECT_EQ(layers.max_encoder_tokens, 1500);
  EXPECT_EQ(first_page("whisper-large-v3"), 16 * 20 * 2 * 64 * 2);
}

TEST(Models, LlamaVisionHasCrossLayersForFourTiles) {
  EXPECT_EQ(census("llama-3.2-11b-vision"), (Census{{"full_attention", 32}, {"cross_attention", 8}}));
  EXPECT_EQ(layers_of(model_facts("llama-3.2-11b-vision")).max_encoder_tokens, 4 * 1601);
}

TEST(KvDTypes, Fp8HalvesThePage) {
  ShardOptions fp8;
  fp8.kv_dtype = KvDType::fp8;
  EXPECT_EQ(first_page("llama-3.1-8b", fp8) * 2, first_page("llama-3.1-8b"));
  EXPECT_EQ(first_page("deepseek-v3", fp8), 16 * 576);
  fp8.kv_dtype = KvDType::fp32;
  EXPECT_EQ(first_page("llama-3.1-8b", fp8), first_page("llama-3.1-8b") * 2);
}

TEST(KvDTypes, PerTokenHeadScalesAreStoredWithTheData) {
  ShardOptions options;
  options.kv_dtype = KvDType::fp8_per_token_head;
  EXPECT_EQ(first_page("llama-3.1-8b", options), 16 * 8 * (2 * 128 + 2 * 4));
  EXPECT_EQ(first_page("deepseek-v3", options), 16 * (576 + 4));
}

TEST(KvDTypes, TheCheckpointsSchemeIsFollowed) {
  auto facts = model_facts("llama-3.1-8b");
  facts.quant.kv = tools::KvQuantisation::per_tensor;
  EXPECT_EQ(page_size_bytes(to_group_spec(layers_of(facts).stages[0][0].spec)), 16 * 8 * 256);
  facts.quant.kv = tools::KvQuantisation::per_token_head;
  EXPECT_EQ(page_size_bytes(to_group_spec(layers_of(facts).stages[0][0].spec)), 16 * 8 * 264);
}

TEST(Pipeline, LeftOverLayersGoBeforeTheLastStage) {
  const auto sizes = [](const std::string& model, std::int64_t stages) {
    ShardOptions options;
    options.pipeline_parallel = stages;
    std::vector<std::size_t> counts;
    for (const auto& stage : layers_of(model_facts(model), options).stages) counts.push_back(stage.size());
    return counts;
  };
  EXPECT_EQ(sizes("llama-3.1-8b", 4), (std::vector<std::size_t>{8, 8, 8, 8}));
  EXPECT_EQ(sizes("deepseek-v3", 4), (std::vector<std::size_t>{15, 15, 16, 15}));
  EXPECT_EQ(sizes("llama-3.1-405b", 4), (std::vector<std::size_t>{31, 32, 32, 31}));
  EXPECT_EQ(sizes("whisper-large-v3", 2), (std::vector<std::size_t>{32, 32}));
}

TEST(Pipeline, MoreStagesThanLayersAreRefused) {
  ShardOptions options;
  options.pipeline_parallel = 29;
  EXPECT_NE(model_layers(model_facts("qwen2.5-7b"), options).error().message.find("num_hidden_layers"),
            std::string::npos);
}

TEST(TensorParallel, UnevenHeadsAreRefusedByName) {
  const auto refusal = [](const std::string& model, std::int64_t tensor_parallel) {
    const auto layers = model_layers(model_facts(model), ranks(tensor_parallel));
    return layers ? std::string{} : layers.error().message;
  };
  EXPECT_NE(refusal("llama-3.1-8b", 3).find("num_attention_heads: no multiple of tensor-parallel size 3, got 32"),
            std::string::npos);
  EXPECT_NE(refusal("phi-4", 4).find("num_key_value_heads: cannot be spread over tensor-parallel size 4, got 10"),
            std::string::npos);
  EXPECT_EQ(refusal("llama-3.1-8b", 16), "");
}

}  // namespace
}  // namespace kvpool
