// From layers and bytes to configurations, rule by rule.
#include "kvpool/config/memory_plan.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "layer_builders.hpp"

namespace kvpool {
namespace {

using namespace test;

PlanOptions options(std::int64_t max_model_len = 16, std::int64_t in_flight = 16) {
  PlanOptions result;
  result.limits.max_model_len = max_model_len;
  result.limits.max_in_flight_tokens = in_flight;
  return result;
}

MemoryPlan planned(const std::vector<WorkerMemory>& workers, const PlanOptions& with = options()) {
  auto plan = get_kv_cache_configs(workers, with);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  return plan ? *plan : MemoryPlan{};
}

Error refusal(const std::vector<WorkerMemory>& workers, const PlanOptions& with = options()) {
  const auto plan = get_kv_cache_configs(workers, with);
  EXPECT_FALSE(plan.ok());
  return plan ? Error{} : plan.error();
}

std::vector<std::int64_t> sizes(const KVCacheConfig& config) {
  std::vector<std::int64_t> result;
  for (const KVCacheTensor& tensor : config.tensors) result.push_back(tensor.size_bytes);
  return result;
}

std::vector<std::vector<std::string>> sharing(const KVCacheConfig& config) {
  std::vector<std::vector<std::string>> result;
  for (const KVCacheTensor& tensor : config.tensors) result.push_back(tensor.shared_by);
  return result;
}

// --- tensors -------------------------------------------------------------------------------------------

TEST(Tensors, FullLayersHaveATensorEach) {
  const auto config = planned({{full_and_window("ff"), 2 * 32 * kPage}}).workers[0];
  EXPECT_EQ(config.num_blocks, 32);
  EXPECT_EQ(sizes(config), (std::vector<std::int64_t>{32 * kPage, 32 * kPage}));
  EXPECT_EQ(sharing(config), (std::vector<std::vector<std::string>>{{"1"}, {"2"}}));
}

TEST(Tensors, GroupsShareTensors) {
  const auto config = planned({{full_and_window("fs"), 2 * 32 * kPage}}).workers[0];
  EXPECT_EQ(config.num_blocks, 64);
  EXPECT_EQ(sizes(config), (std::vector<std::int64_t>{64 * kPage}));
  EXPECT_EQ(sharing(config), (std::vector<std::vector<std::string>>{{"1", "2"}}));
}

TEST(Tensors, ShortGroupsLeaveTheLastTensorToTheOthers) {
  const auto config = planned({{full_and_window("fffsssssss"), 3 * 100 * kPage}}).workers[0];
  EXPECT_EQ(config.num_blocks, 100);
  EXPECT_EQ(sharing(config),
            (std::vector<std::vector<std::string>>{{"1", "4", "5", "6"}, {"2", "7", "8", "9"}, {"3", "10"}}));
}

TEST(Tensors, MixedGroupsHaveTensorsOfTheirLayersPages) {
  const auto config = planned({{{{"1", full(128)}, {"2", full(64)}}, 3 * 32 * kPage}}).workers[0];
  EXPECT_EQ(config.num_blocks, 32);
  EXPECT_EQ(sizes(config), (std::vector<std::int64_t>{64 * kPage, 32 * kPage}));
}

TEST(Tensors, PaddedPagesCountPadded) {
  const auto config = planned({{{{"1", full(64)}, {"2", window(1024, 96)}}, 2 * 32 * kPage}}).workers[0];
  EXPECT_EQ(config.num_blocks, 42);
}

TEST(Tensors, OverrideReplacesTheNumberOfBlocks) {
  PlanOptions with = options();
  with.num_gpu_blocks_override = 16;
  const auto config = planned({{full_and_window("ff"), 2 * 32 * kPage}}, with).workers[0];
  EXPECT_EQ(config.num_blocks, 16);
  EXPECT_EQ(allocated_bytes(config), 2 * 16 * kPage);
}

TEST(Tensors, WithoutLayersOnlyTheNullBlockRemains) {
  const auto plan = planned({{{}, 1000}});
  EXPECT_EQ(plan.workers[0].num_blocks, 1);
  EXPECT_TRUE(plan.workers[0].tensors.empty());
  EXPECT_TRUE(plan.groups.empty());
}

TEST(Tensors, PackedLayoutLaysEachGroupFromTheFirstByte) {
  PlanOptions with = options();
  with.cross_layer_blocks = true;
  const auto config = planned({{full_and_window("fffsssssss"), 3 * 100 * kPage + 5}}, with).workers[0];
  EXPECT_EQ(config.num_blocks, 100);
  ASSERT_EQ(config.tensors.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(config.tensors[i].offset_bytes, static_cast<std::int64_t>(i) * kPage);
    EXPECT_EQ(config.tensors[i].block_stride_bytes, 3 * kPage);
    EXPECT_EQ(config.tensors[i].size_bytes, 100 * 3 * kPage);
  }
  EXPECT_EQ(config.tensors[2].shared_by, (std::vector<std::string>{"3", "10"}));
  EXPECT_EQ(allocated_bytes(config), 300 * kPage);
}

TEST(Tensors, TuplesArePackedWithOneEntryPerDistinctOffset) {
  // Latent group: pages 4096 + 4096. Window groups: 2048 + 3072 each.
  const std::vector<NamedLayer> layers = {
      {"m1", latent(64)}, {"m2", latent(64)}, {"a", latent_window(128, 32)}, {"b", latent_window(128, 48)}};
  const auto config = planned({{layers, 8192 * 50}}).workers[0];
  EXPECT_EQ(config.num_blocks, 50);
  ASSERT_EQ(config.tensors.size(), 3U);
  EXPECT_EQ(config.tensors[0].shared_by, (std::vector<std::string>{"m1", "a"}));
  EXPECT_EQ(config.tensors[1].offset_bytes, 2048);
  EXPECT_EQ(config.tensors[1].shared_by, (std::vector<std::string>{"b"}));
  EXPECT_EQ(config.tensors[2].offset_bytes, 4096);
  EXPECT_EQ(config.tensors[2].shared_by, (std::vector<std::string>{"m2"}));
}

TEST(Tensors, OneGroupIsNeverPacked) {
  PlanOptions with = options();
  with.cross_layer_blocks = true;
  EXPECT_EQ(planned({{full_and_window("ff"), 100 * kPage}}, with).workers[0].tensors[0].block_stride_bytes, 0);
}

// --- several ranks --------------------------------------------------------------------------------------

TEST(Ranks, TheSmallestRankDecidesAndTensorsShrink) {
  const auto plan = planned({{full_and_window("ff"), 2 * 32 * kPage}, {full_and_window("ff"), 2 * 20 * kPage + 7}});
  for (const KVCacheConfig& config : plan.workers) {
    EXPECT_EQ(config.num_blocks, 20);
    EXPECT_EQ(allocated_bytes(config), 2 * 20 * kPage);
  }
}

TEST(Ranks, EqualLayersMustHaveEqualSpecs) {
  const Error error = refusal({{{{"1", full(64)}}, 100 * kPage}, {{{"1", full(128)}}, 100 * kPage}});
  EXPECT_EQ(error.code, ErrorCode::layout_mismatch);
  EXPECT_EQ(error.rank, 1);
  EXPECT_EQ(error.message, "layer '1' has another spec on rank 1 than on rank 0");
}

TEST(Ranks, PipelineStagesShareGroups) {
  const auto layers = full_and_window("fssfss");
  const std::vector<NamedLayer> first(layers.begin(), layers.begin() + 3);
  const std::vector<NamedLayer> second(layers.begin() + 3, layers.end());
  const auto plan = planned({{first, 10 * kPage}, {second, 12 * kPage}});
  EXPECT_EQ(names(plan.groups), (std::vector<std::vector<std::string>>{{"1", "4"}, {"2", "5"}, {"3", "6"}}));
  EXPECT_EQ(names(plan.workers[1].groups), (std::vector<std::vector<std::string>>{{"4"}, {"5"}, {"6"}}));
  EXPECT_EQ(plan.workers[0].num_blocks, 10);
  EXPECT_EQ(plan.workers[1].num_blocks, 10);
}

TEST(Ranks, AStageWithoutLayersFollowsTheOthers) {
  const auto plan = planned({{full_and_window("f"), 10 * kPage}, {{}, 0}});
  EXPECT_EQ(plan.workers[1].num_blocks, 10);
  EXPECT_TRUE(plan.workers[1].tensors.empty());
  EXPECT_EQ(plan.workers[1].groups.size(), 1U);
}

TEST(Ranks, MtpWidensEveryWindow) {
  PlanOptions with = options();
  with.num_mtp_tokens = 3;
  const auto plan = planned({{full_and_window("fs"), 100 * kPage}}, with);
  EXPECT_EQ(std::get<SlidingWindowSpec>(plan.groups[1].spec).extra_retained_tokens, 2);
  with.num_mtp_tokens = 0;
  EXPECT_EQ(std::get<SlidingWindowSpec>(planned({{full_and_window("fs"), 100 * kPage}}, with).groups[1].spec)
                .extra_retained_tokens,
            0);
}

TEST(Ranks, WindowsNeedOneContextRank) {
  PlanOptions with = options();
  with.limits.dcp_world_size = 2;
  EXPECT_EQ(refusal({{full_and_window("fs"), 100 * kPage}}, with).code, ErrorCode::unsupported);
  EXPECT_EQ(planned({{full_and_window("ff"), 100 * kPage}}, with).workers[0].num_blocks, 50);
}

// --- what is refused ------------------------------------------------------------------------------------

TEST(Refusals, NoMemoryAtAll) {
  const Error error = refusal({{full_and_window("f"), kPage}});
  EXPECT_EQ(error.code, ErrorCode::out_of_memory);
  EXPECT_EQ(error.rank, 0);
  EXPECT_NE(error.message.find("no memory for the KV cache: 16384 bytes"), std::string::npos);
  EXPECT_EQ(refusal({{full_and_window("f"), -5}}).code, ErrorCode::out_of_memory);
}

TEST(Refusals, TheNullBlockIsReservedBeforeTheRequestIsChecked) {
  const auto one_request = options(160);
  EXPECT_EQ(planned({{full_and_window("f"), 11 * kPage}}, one_request).workers[0].num_blocks, 11);
  const Error error = refusal({{full_and_window("f"), 11 * kPage - 1}}, one_request);
  EXPECT_NE(error.message.find("the largest max_model_len that fits is 144"), std::string::npos) << error.message;
}

TEST(Refusals, NameTheTightestRank) {
  const auto with = options(160);
  EXPECT_EQ(refusal({{full_and_window("f"), 50 * kPage}, {full_and_window("f"), 5 * kPage}}, with).rank, 1);
}

TEST(Refusals, OverridesAreCheckedToo) {
  PlanOptions with = options(160);
  with.num_gpu_blocks_override = 10;
  EXPECT_EQ(refusal({{full_and_window("f"), 1000 * kPage}}, with).code, ErrorCode::out_of_memory);
  with.num_gpu_blocks_override = 11;
  EXPECT_EQ(planned({{full_and_window("f"), 0}}, with).workers[0].num_blocks, 11);
}

TEST(Refusals, SinksTakeTheirBlocksFirst) {
  SinkFullAttentionSpec sink;
  sink.shape = shape();
  sink.sink_len = 32;
  EXPECT_TRUE(get_kv_cache_configs(std::vector<WorkerMemory>{{{{"1", sink}}, 13 * kPage}}, options(160)).ok());
  EXPECT_FALSE(get_kv_cache_configs(std::vector<WorkerMemory>{{{{"1", sink}}, 12 * kPage}}, options(160)).ok());
}

TEST(Refusals, OptionsOutOfRangeAreNamed) {
  EXPECT_EQ(refusal({}).message, "no rank to plan for");
  EXPECT_EQ(refusal({{{}, 0}}, options(0)).message, "max_model_len 0 must be at least 1");
  PlanOptions with = options();
  with.num_gpu_blocks_override = 0;
  EXPECT_EQ(refusal({{{}, 0}}, with).message, "num_gpu_blocks_override 0 must be at least 1");
  EXPECT_FALSE(get_kv_cache_config_from_groups(std::vector<KVCacheGroup>{{{"1"}, full()}}, 100, with).ok());
  with = options();
  with.min_concurrent_requests = 0;
  EXPECT_EQ(refusal({{{}, 0}}, with).message, "min_concurrent_requests 0 must be at least 1");
  EXPECT_EQ(refusal({{{{"1", full()}, {"1", full()}}, 100 * kPage}}).message, "layer '1' appears twice");
}

// --- auto-fit -------------------------------------------------------------------------------------------

TEST(AutoFit, LowersTheLengthToTheTightestRank) {
  PlanOptions with = options(4096);
  with.auto_fit_max_model_len = true;
  const auto plan = planned({{full_and_window("f"), 50 * kPage}, {full_and_window("f"), 21 * kPage}}, with);
  EXPECT_EQ(plan.max_model_len, 20 * 16);
  EXPECT_EQ(plan.workers[0].num_blocks, 21);
}

TEST(AutoFit, NeverRaisesTheLength) {
  PlanOptions with = options(64);
  with.auto_fit_max_model_len = true;
  EXPECT_EQ(planned({{full_and_window("f"), 500 * kPage}}, with).max_model_len, 64);
}

TEST(AutoFit, FailsWhenNotOneTokenFits) {
  PlanOptions with = options(4096);
  with.auto_fit_max_model_len = true;
  const Error error = refusal({{full_and_window("f"), 50 * kPage}, {full_and_window("f"), kPage}}, with);
  EXPECT_EQ(error.code, ErrorCode::out_of_memory);
  EXPECT_EQ(error.rank, 1);
}

// --- reports -------------------------------------------------------------------------------------------

CapacityReport report(const std::string& pattern, std::int64_t num_blocks) {
  KVCacheConfig config;
  config.groups = *get_kv_cache_groups(full_and_window(pattern));
  config.num_blocks = num_blocks;
  return capacity_report(config, options(16384, 1024).limits);
}

TEST(Capacity, FullAttention) {
  EXPECT_DOUBLE_EQ(report("ff", 1536).max_concurrency, 1.5);
  EXPECT_EQ(report("ff", 1536).num_tokens, 24576);
}

TEST(Capacity, SlidingWindow) { EXPECT_DOUBLE_EQ(report("ss", 387).max_concurrency, 3); }

TEST(Capacity, Hybrid) {
  EXPECT_DOUBLE_EQ(report("fs", 3459).max_concurrency, 3);
  EXPECT_EQ(report("fs", 3459).blocks_per_request, 1024 + 129);
}

TEST(Capacity, NothingNeededMeansNoLimit) {
  EXPECT_TRUE(std::isinf(capacity_report(KVCacheConfig{}, options().limits).max_concurrency));
}

TEST(SchedulerConfig, RepresentsMixedGroupsAndKeepsEagleOfAnyRank) {
  PlanOptions with = options();
  with.grouping.draft_layers = {"2"};
  const auto mixed = planned({{{{"1", full(64)}, {"2", full(128)}}, 150 * kPage}}, with);
  const auto scheduler = generate_scheduler_kv_cache_config(mixed.workers);
  ASSERT_TRUE(scheduler.ok());
  EXPECT_EQ(scheduler->num_blocks, 50);
  EXPECT_EQ(scheduler->groups[0].spec, KVCacheSpec{full(64)});

  const auto staged = planned({{{{"1", window()}}, 100 * kPage}, {{{"2", full()}}, 100 * kPage}}, with);
  EXPECT_FALSE(staged.workers[0].groups[1].is_eagle_group);
  EXPECT_TRUE(generate_scheduler_kv_cache_config(staged.workers)->groups[1].is_eagle_group);
}

TEST(SchedulerConfig, RanksMustAgree) {
  KVCacheConfig ten, eleven;
  ten.num_blocks = 10;
  eleven.num_blocks = 11;
  EXPECT_EQ(generate_scheduler_kv_cache_config(std::vector<KVCacheConfig>{ten, eleven}).error().message,
            "rank 1 has 11 blocks, rank 0 has 10");
  KVCacheConfig grouped = ten;
  grouped.groups = {{{"1"}, full()}};
  EXPECT_EQ(generate_scheduler_kv_cache_config(std::vector<KVCacheConfig>{ten, grouped}).error().rank, 1);
  EXPECT_FALSE(generate_scheduler_kv_cache_config({}).ok());
}

TEST(RetentionInterval, IsHandedOn) {
  PlanOptions with = options();
  with.prefix_cache_retention_interval = 64;
  EXPECT_EQ(planned({{full_and_window("fs"), 100 * kPage}}, with).workers[0].prefix_cache_retention_interval, 64);
}

}  // namespace
}  // namespace kvpool
