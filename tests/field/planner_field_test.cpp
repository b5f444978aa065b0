// Memory planning as it failed in the field.
#include <gtest/gtest.h>

#include <random>

#include "kvpool/config/memory_plan.hpp"

namespace kvpool {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

FullAttentionSpec full(std::int64_t block_size = 16) {
  FullAttentionSpec spec;
  spec.block_size = block_size;
  spec.shape.num_kv_heads = 8;
  spec.shape.head_size = 128;
  spec.shape.dtype = DType::float16;
  return spec;
}

SlidingWindowSpec window(std::int64_t width, std::int64_t block_size = 16) {
  return SlidingWindowSpec{block_size, full().shape, width, 0};
}

PlanOptions length(std::int64_t max_model_len) {
  PlanOptions options;
  options.limits.max_model_len = max_model_len;
  options.limits.max_in_flight_tokens = 512;
  return options;
}

std::vector<WorkerMemory> one_layer(const LayerSpec& spec, std::int64_t num_blocks) {
  return {{{{"0", spec}}, num_blocks * page_size_bytes(to_group_spec(spec))}};
}

TEST(F034, MaximumLengthLargerThanThePool) {
  const auto workers = one_layer(full(), 229 + 1);  // 229 blocks of 16 tokens, and the null block
  EXPECT_TRUE(get_kv_cache_configs(workers, length(3664)).ok());
  for (const std::int64_t too_long : {3665, 4096}) {
    const auto refused = get_kv_cache_configs(workers, length(too_long));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("largest max_model_len that fits is 3664"), std::string::npos);
  }
}

TEST(F035, EstimateWithWindowLayersEqualsBruteForce) {
  std::mt19937_64 random(35);
  const auto pick = [&random](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int i = 0; i < 200; ++i) {
    const std::int64_t block_size = pick(1, 40);
    const std::vector<NamedLayer> layers = {{"f", full(block_size)}, {"w", window(pick(1, 300), block_size)}};
    const auto groups = get_kv_cache_groups(layers);
    ASSERT_TRUE(groups.ok());
    RequestLimits limits;
    limits.max_in_flight_tokens = pick(1, 200);
    const std::int64_t num_blocks = pick(1, 60);
    std::int64_t brute_force = 0;
    for (limits.max_model_len = 1; blocks_per_request(*groups, limits) <= num_blocks - 1; ++limits.max_model_len) {
      brute_force = limits.max_model_len;
    }
    limits.max_model_len = 1'000'000;
    EXPECT_EQ(estimate_max_model_len(*groups, limits, num_blocks), brute_force);
    EXPECT_GE(estimate_max_model_len(*groups, limits, num_blocks + 1), brute_force);
  }
}

TEST(F035, EstimateDoesNotOverflowWithTerabytes) {
  const std::vector<WorkerMemory> workers = {{{{"f", full()}, {"w", window(4096)}}, std::int64_t{1} << 60}};
  PlanOptions options = length(std::int64_t{1} << 62);
  options.auto_fit_max_model_len = true;
  const auto plan = get_kv_cache_configs(workers, options);
  ASSERT_TRUE(plan.ok());
  const std::int64_t blocks = (std::int64_t{1} << 60) / 65'536;
  EXPECT_EQ(plan->workers[0].num_blocks, blocks);
  // The window takes cdiv(4095 + 512, 16) + 1 blocks, the null block one.
  EXPECT_EQ(plan->max_model_len, (blocks - 1 - 289) * 16);
}

TEST(F038, WindowPoolHoldsAllConcurrentRequests) {
  // A window smaller than a block.
  const std::vector<NamedLayer> layers = {{"f", full()}, {"w", window(8)}};
  PlanOptions options = length(64);
  options.limits.max_in_flight_tokens = 16;
  options.min_concurrent_requests = 4;
  const std::int64_t page = page_size_bytes(full());
  const std::int64_t per_request = 4 + (2 + 1);
  EXPECT_TRUE(get_kv_cache_configs(std::vector<WorkerMemory>{{layers, (4 * per_request + 1) * page}}, options).ok());
  const auto refused = get_kv_cache_configs(std::vector<WorkerMemory>{{layers, 4 * per_request * page}}, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("4 request(s) of max_model_len 64 need 28 blocks"), std::string::npos);
}

TEST(F039, EveryBlockSizeFromOneIsPlanned) {
  for (const std::int64_t size : {1, 3, 8, 16, 17, 256}) {
    const auto plan = get_kv_cache_configs(one_layer(full(size), 1000), length(256));
    ASSERT_TRUE(plan.ok()) << size;
    EXPECT_EQ(blocks_per_request(plan->groups, length(256).limits), (256 + size - 1) / size);
  }
  const auto refused = get_kv_cache_configs(std::vector<WorkerMemory>{{{{"0", full(0)}}, kGiB}}, length(256));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("block_size 0"), std::string::npos);
}

TEST(F040, TheReservedBlockIsNoCapacity) {
  const auto workers = one_layer(full(), 69);
  EXPECT_TRUE(get_kv_cache_configs(workers, length(1088)).ok());
  EXPECT_FALSE(get_kv_cache_configs(workers, length(1104)).ok());
}

TEST(F049, ExplicitSizeIsUsedAndAnExplicitCountWins) {
  std::vector<NamedLayer> layers;
  for (int i = 0; i < 28; ++i) layers.push_back({std::to_string(i), full()});
  const auto groups = get_kv_cache_groups(layers);
  ASSERT_TRUE(groups.ok());
  EXPECT_EQ(bytes_per_block(*groups), 1'835'008);
  const auto plan = get_kv_cache_configs(std::vector<WorkerMemory>{{layers, kGiB}}, length(1024));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->workers[0].num_blocks, 585);
  EXPECT_LE(allocated_bytes(plan->workers[0]), kGiB);
  PlanOptions counted = length(1024);
  counted.num_gpu_blocks_override = 100;
  EXPECT_EQ(get_kv_cache_configs(std::vector<WorkerMemory>{{layers, kGiB}}, counted)->workers[0].num_blocks, 100);
}

std::vector<NamedLayer> stage(const std::string& pattern, int first) {
  std::vector<NamedLayer> layers;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::string name = pattern.substr(i, 1) + std::to_string(first + static_cast<int>(i));
    if (pattern[i] == 'f') {
      layers.push_back({name, full()});
    } else {
      layers.push_back({name, window(1024)});
    }
  }
  return layers;
}

TEST(F054, StagesWithDifferentMixesShareOneGroupTable) {
  const std::string first = "fsfsfsfsfsfsfsfsfsfss";   // 10 full, 11 window
  const std::string second = "sfsfsfsfsfsfsfsfsfsff";  // the reverse
  const auto plan = get_kv_cache_configs(
      std::vector<WorkerMemory>{{stage(first, 0), kGiB}, {stage(second, 21), kGiB / 2}}, length(1024));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->groups.size(), 2U);
  EXPECT_EQ(plan->workers[0].num_blocks, plan->workers[1].num_blocks);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(plan->workers[0].groups[i].spec, plan->workers[1].groups[i].spec);
    EXPECT_FALSE(plan->workers[0].groups[i].layer_names.empty());
    EXPECT_FALSE(plan->workers[1].groups[i].layer_names.empty());
  }
}

TEST(F054, GroupsAreDealtOutSoThatNoStageIsEmpty) {
  const auto plan =
      get_kv_cache_configs(std::vector<WorkerMemory>{{stage("fss", 0), kGiB}, {stage("fss", 3), kGiB}}, length(1024));
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->groups.size(), 3U);
  EXPECT_EQ(plan->groups[0].layer_names, (std::vector<std::string>{"f0", "f3"}));
  EXPECT_EQ(plan->groups[1].layer_names, (std::vector<std::string>{"s1", "s4"}));
  EXPECT_EQ(plan->groups[2].layer_names, (std::vector<std::string>{"s2", "s5"}));
  for (const KVCacheConfig& worker : plan->workers) {
    for (const KVCacheGroup& group : worker.groups) EXPECT_EQ(group.layer_names.size(), 1U);
  }
}

TEST(F060, BlocksAreCountedInTokensNotSlots) {
  MlaAttentionSpec compressed;
  compressed.block_size = 64;  // 16 slots of 4 tokens
  compressed.compress_ratio = 4;
  RequestLimits limits;
  limits.max_model_len = 200;
  EXPECT_EQ(max_blocks_per_request(full(16), limits), 13);
  EXPECT_EQ(max_blocks_per_request(full(64), limits), 4);
  EXPECT_EQ(max_blocks_per_request(compressed, limits), 4);
}

TEST(F063, CrossBlocksFollowTheEncoderItem) {
  CrossAttentionSpec cross;
  RequestLimits limits;
  limits.max_model_len = 1024;
  limits.max_in_flight_tokens = 8192;
  limits.max_num_encoder_input_tokens = 1500;
  EXPECT_EQ(max_blocks_per_request(cross, limits), 94);
}

}  // namespace
}  // namespace kvpool
