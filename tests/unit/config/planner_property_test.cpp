// Random models: a plan never promises more than the memory holds, and the longest length is exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kvpool/config/memory_plan.hpp"
#include "layer_builders.hpp"

namespace kvpool {
namespace {

using namespace test;

constexpr int kModels = 400;

class RandomModels : public testing::Test {
 protected:
  std::int64_t pick(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }

  AttentionShape random_shape() {
    AttentionShape result = shape(std::int64_t{32} << pick(0, 3), std::int64_t{1} << pick(0, 3));
    result.dtype = pick(0, 1) == 0 ? DType::bfloat16 : DType::fp8_e4m3;
    if (pick(0, 9) == 0) result.head_content_bytes = 2 * result.head_size + 8;
    return result;
  }

  // One of the specs that a model mixes.
  LayerSpec random_spec() {
    const std::int64_t block_size = std::int64_t{8} << pick(0, 3);
    const AttentionShape own = random_shape();
    switch (pick(0, 6)) {
      case 0: return SlidingWindowSpec{block_size, own, pick(1, 5000), 0};
      case 1: return ChunkedLocalAttentionSpec{block_size, own, pick(1, 8000)};
      case 2: {
        MambaSpec mamba = state(pick(100, 20'000), block_size);
        mamba.cache_mode = static_cast<MambaCacheMode>(pick(0, 2));
        mamba.num_speculative_blocks = pick(0, 3);
        return mamba;
      }
      case 3: return CrossAttentionSpec{block_size, own};
      case 4: return MlaAttentionSpec{block_size, shape(576, 1), 1, {}};
      default: return FullAttentionSpec{block_size, own, {}, {}};
    }
  }

  std::vector<NamedLayer> random_model() {
    std::vector<LayerSpec> specs;
    for (std::int64_t i = pick(1, 3); i > 0; --i) specs.push_back(random_spec());
    std::vector<NamedLayer> layers;
    for (std::int64_t i = pick(1, 40); i > 0; --i) {
      const auto which = static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(specs.size()) - 1));
      layers.push_back({std::to_string(i), specs[which]});
    }
    return layers;
  }

  // The model cut into stages, each with memory of its own.
  std::vector<WorkerMemory> random_workers(const std::vector<NamedLayer>& layers) {
    const std::int64_t stages = pick(1, 3);
    std::vector<WorkerMemory> workers(static_cast<std::size_t>(stages));
    for (std::size_t i = 0; i < layers.size(); ++i)
      workers[i * workers.size() / layers.size()].layers.push_back(layers[i]);
    for (WorkerMemory& worker : workers) worker.available_bytes = pick(1 << 20, std::int64_t{1} << 34);
    return workers;
  }

  PlanOptions random_options() {
    PlanOptions result;
    result.limits.max_model_len = pick(1, 200'000);
    result.limits.max_in_flight_tokens = pick(1, 16'384);
    result.limits.max_num_encoder_input_tokens = pick(0, 6404);
    result.cross_layer_blocks = pick(0, 1) == 1;
    result.min_concurrent_requests = pick(1, 3);
    return result;
  }

  std::mt19937_64 random_{20'240'901};
};

TEST_F(RandomModels, TensorsNeverExceedTheMemoryAndHoldEveryLayer) {
  int planned = 0;
  for (int i = 0; i < kModels; ++i) {
    const auto workers = random_workers(random_model());
    PlanOptions options = random_options();
    options.auto_fit_max_model_len = true;
    const auto plan = get_kv_cache_configs(workers, options);
    if (!plan) continue;  // page sizes that cannot be unified, or not one token fits
    ++planned;
    for (std::size_t w = 0; w < workers.size(); ++w) {
      const KVCacheConfig& config = plan->workers[w];
      EXPECT_EQ(config.num_blocks, plan->workers[0].num_blocks);
      EXPECT_LE(allocated_bytes(config), workers[w].available_bytes);
      EXPECT_EQ(allocated_bytes(config), config.num_blocks * bytes_per_block(config.groups));
      std::size_t layers = 0;
      for (const KVCacheTensor& tensor : config.tensors) layers += tensor.shared_by.size();
      EXPECT_EQ(layers, workers[w].layers.size());
    }
  }
  EXPECT_GT(planned, kModels / 3);
}

TEST_F(RandomModels, PagesOfAllGroupsAreEqualUnlessPacked) {
  for (int i = 0; i < kModels; ++i) {
    const auto groups = get_kv_cache_groups(random_model());
    if (!groups || groups->size() < 2) continue;
    for (const KVCacheGroup& group : *groups)
      EXPECT_EQ(page_size_bytes(group.spec), page_size_bytes(groups->front().spec));
  }
}

TEST_F(RandomModels, EveryLayerIsInExactlyOneGroup) {
  for (int i = 0; i < kModels; ++i) {
    const auto layers = random_model();
    const auto groups = get_kv_cache_groups(layers);
    if (!groups) continue;
    std::vector<std::string> grouped;
    for (const KVCacheGroup& group : *groups) {
      EXPECT_FALSE(group.layer_names.empty());
      grouped.insert(grouped.end(), group.layer_names.begin(), group.layer_names.end());
    }
    std::vector<std::string> given;
    for (const NamedLayer& layer : layers) given.push_back(layer.name);
    std::sort(grouped.begin(), grouped.end());
    std::sort(given.begin(), given.end());
    EXPECT_EQ(grouped, given);
  }
}

TEST_F(RandomModels, TheLongestLengthFitsAndOneTokenMoreDoesNot) {
  for (int i = 0; i < kModels; ++i) {
    const auto groups = get_kv_cache_groups(random_model());
    if (!groups) continue;
    RequestLimits limits = random_options().limits;
    limits.max_model_len = 10'000'000;
    const std::int64_t num_blocks = pick(1, 5000);
    const std::int64_t usable = num_blocks - reserved_blocks(*groups);
    const std::int64_t longest = estimate_max_model_len(*groups, limits, num_blocks);
    const auto need = [&](std::int64_t length) {
      limits.max_model_len = length;
      return blocks_per_request(*groups, limits);
    };
    EXPECT_TRUE(longest == 0 || need(longest) <= usable);
    EXPECT_TRUE(longest == 10'000'000 || need(longest + 1) > usable);
  }
}

TEST_F(RandomModels, MoreMemoryNeverShortensTheLength) {
  for (int i = 0; i < kModels; ++i) {
    const auto groups = get_kv_cache_groups(random_model());
    if (!groups) continue;
    const RequestLimits limits = random_options().limits;
    std::int64_t previous = 0;
    for (std::int64_t blocks = 1; blocks < 3000; blocks += pick(1, 300)) {
      const std::int64_t longest = estimate_max_model_len(*groups, limits, blocks);
      EXPECT_GE(longest, previous);
      previous = longest;
    }
  }
}

TEST_F(RandomModels, RefusalsAgreeWithTheEstimate) {
  for (int i = 0; i < kModels; ++i) {
    const auto workers = random_workers(random_model());
    PlanOptions options = random_options();
    const auto strict = get_kv_cache_configs(workers, options);
    options.auto_fit_max_model_len = true;
    const auto fitted = get_kv_cache_configs(workers, options);
    if (strict) {
      ASSERT_TRUE(fitted.ok());
      EXPECT_EQ(fitted->max_model_len, options.limits.max_model_len);
    } else if (fitted) {
      EXPECT_EQ(strict.error().code, ErrorCode::out_of_memory);
      EXPECT_LT(fitted->max_model_len, options.limits.max_model_len);
    }
  }
}

TEST_F(RandomModels, HugeMemoryAndLengthDoNotOverflow) {
  for (int i = 0; i < kModels; ++i) {
    auto workers = random_workers(random_model());
    for (WorkerMemory& worker : workers)
      worker.available_bytes = (std::int64_t{1} << 40) + pick(0, std::int64_t{1} << 61);
    PlanOptions options = random_options();
    options.limits.max_model_len = (std::int64_t{1} << 62) + pick(0, std::int64_t{1} << 61);
    options.auto_fit_max_model_len = true;
    const auto plan = get_kv_cache_configs(workers, options);
    if (!plan) continue;
    EXPECT_GT(plan->max_model_len, 0);
    for (std::size_t w = 0; w < workers.size(); ++w) {
      EXPECT_LE(allocated_bytes(plan->workers[w]), workers[w].available_bytes);
    }
  }
}

}  // namespace
}  // namespace kvpool
