// Bytes per rank as they were miscounted in the field.
#include <gtest/gtest.h>

#include "kvpool/config/memory_plan.hpp"
#include "tools/plan/config_reader.hpp"
#include "tools/plan/model_layers.hpp"

namespace kvpool {
namespace {

TEST(F053, PagesAreDividedOnceAndNeverBelowAHead) {
  const auto facts = tools::parse_model_config(
      "config.json",
      R"({"model_type":"llama","torch_dtype":"float16","hidden_size":2048,"num_hidden_layers":1,
          "num_attention_heads":16,"num_key_value_heads":8,"head_dim":128})");
  constexpr std::int64_t kBudget = std::int64_t{1} << 30;
  for (const auto& [ranks, page] :
       {std::pair{1, 65'536}, std::pair{2, 32'768}, std::pair{8, 8192}, std::pair{16, 8192}}) {
    tools::ShardOptions options;
    options.tensor_parallel = ranks;
    const auto layers = tools::model_layers(facts, options);
    ASSERT_TRUE(layers.ok());
    EXPECT_EQ(page_size_bytes(to_group_spec(layers->stages[0][0].spec)), page) << ranks;
    PlanOptions with;
    with.limits.max_model_len = 1024;
    const auto plan = get_kv_cache_configs(std::vector<WorkerMemory>{{layers->stages[0], kBudget}}, with);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->workers[0].num_blocks, kBudget / page) << ranks;
  }
}

}  // namespace
}  // namespace kvpool
