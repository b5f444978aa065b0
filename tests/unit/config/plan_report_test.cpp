// The plan of a model: numbers, ledger, and what would make it fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "kvpool/config/memory_plan.hpp"
#include "plan_fixture.hpp"
#include "tools/plan/ledger.hpp"
#include "tools/plan/report_text.hpp"
#include "tools/plan/weights.hpp"
#include "tools/trace/input_error.hpp"

namespace kvpool {
namespace {

using namespace test;
using tools::LedgerEntry;
using tools::PlanReport;
using tools::PlanRequest;

std::map<std::string, std::int64_t> entries_of_stage(const PlanReport& report, std::int64_t stage) {
  std::map<std::string, std::int64_t> entries;
  for (const LedgerEntry& entry : report.ledger) {
    if (entry.stage == stage) entries[entry.name] = entry.bytes;
  }
  return entries;
}

std::int64_t sum(const std::map<std::string, std::int64_t>& entries) {
  std::int64_t bytes = 0;
  for (const auto& [name, value] : entries) bytes += value;
  return bytes;
}

std::vector<std::string> all_models() {
  std::vector<std::string> models;
  for (const auto& file : std::filesystem::directory_iterator(std::string(KVPOOL_TEST_DATA) + "/models")) {
    models.push_back(file.path().stem().string());
  }
  std::sort(models.begin(), models.end());
  return models;
}

TEST(Plan, Llama8BOnOneGpu) {
  PlanRequest request = gpu(80);
  request.weights = 16 * kGiB;
  request.peak = 2 * kGiB;
  const PlanReport report = report_of(model_facts("llama-3.1-8b"), request);
  const std::int64_t available = tools::usable_bytes(80 * kGiB, 0.92) - 18 * kGiB;
  EXPECT_EQ(report.num_blocks, available / (16 * 131'072));
  EXPECT_EQ(report.page_size_bytes, 65'536);
  EXPECT_EQ(report.bytes_per_block, 2'097'152);
  EXPECT_DOUBLE_EQ(report.bytes_per_token, 131'072);
  EXPECT_EQ(report.max_model_len, 131'072);
  EXPECT_DOUBLE_EQ(report.max_concurrency, static_cast<double>(report.num_blocks) / 8192);
  EXPECT_EQ(report.num_tokens, report.num_blocks * 16);
  EXPECT_EQ(report.max_model_len_fit, 131'072);
  EXPECT_TRUE(report.fits);
}

TEST(Plan, EqualsTheLibrarysConfiguration) {
  for (const std::string& model : all_models()) {
    for (const std::int64_t stages : {1, 2}) {
      PlanRequest request = gpu(400, 1);
      request.shard.pipeline_parallel = stages;
      request.weights = 10 * kGiB;
      request.peak = 0;
      request.max_model_len = 400;
      const auto facts = model_facts(model);
      const PlanReport report = report_of(facts, request);
      ASSERT_TRUE(report.fits) << model;

      const auto layers = layers_of(facts, request.shard);
      std::vector<WorkerMemory> workers;
      for (const auto& stage : layers.stages) {
        workers.push_back({stage, tools::usable_bytes(request.gpu_memory, request.utilization) - 10 * kGiB});
      }
      PlanOptions options;
      options.limits.max_model_len = 400;
      options.limits.max_in_flight_tokens = 8192 * stages;
      options.limits.max_num_encoder_input_tokens = layers.max_encoder_tokens;
      const auto plan = get_kv_cache_configs(workers, options);
      ASSERT_TRUE(plan.ok()) << model << ": " << plan.error().message;
      for (std::size_t i = 0; i < plan->workers.size(); ++i) {
        EXPECT_EQ(plan->workers[i].num_blocks, report.num_blocks) << model;
        auto entries = entries_of_stage(report, static_cast<std::int64_t>(i));
        EXPECT_EQ(allocated_bytes(plan->workers[i]), entries["kv_blocks"] + entries["kv_reserved_blocks"]) << model;
      }
    }
  }
}

TEST(Ledger, AccountsForEveryByteOfEveryModel) {
  std::mt19937_64 random(7);
  for (const std::string& model : all_models()) {
    const auto facts = model_facts(model);
    for (int i = 0; i < 20; ++i) {
      const auto pick = [&random](std::int64_t least, std::int64_t most) {
        return std::uniform_int_distribution<std::int64_t>(least, most)(random);
      };
      PlanRequest request;
      request.gpu_memory = pick(1, 200 * kGiB);
      request.utilization = static_cast<double>(pick(1, 1000)) / 1000;
      request.shard.tensor_parallel = std::int64_t{1} << pick(0, 1);
      request.shard.pipeline_parallel = pick(1, 4);
      request.shard.block_size = std::int64_t{8} << pick(0, 4);
      request.peak = pick(0, 4 * kGiB);
      if (pick(0, 1) == 0) request.weights = pick(0, 50 * kGiB);
      const auto report = tools::plan_model(facts, request);
      ASSERT_TRUE(report.ok()) << model << ": " << report.error().message;
      for (std::int64_t stage = 0; stage < request.shard.pipeline_parallel; ++stage) {
        const auto entries = entries_of_stage(*report, stage);
        EXPECT_EQ(sum(entries), request.gpu_memory) << model;
        for (const auto& [name, bytes] : entries) {
          EXPECT_TRUE(bytes >= 0 || name == "overcommitted") << model << ' ' << name << ' ' << bytes;
        }
      }
      EXPECT_EQ(report->ledger_bytes, request.gpu_memory * request.shard.pipeline_parallel);
    }
  }
}

TEST(Ledger, WeightsBeyondTheLimitAreOvercommitted) {
  const PlanReport report = report_of(model_facts("llama-3.1-70b"), gpu(80));
  const auto entries = entries_of_stage(report, 0);
  EXPECT_LT(entries.at("overcommitted"), 0);
  EXPECT_EQ(report.num_blocks, 0);
  EXPECT_EQ(report.max_model_len_fit, 0);
  EXPECT_FALSE(report.fits);
  EXPECT_EQ(sum(entries), 80 * kGiB);
}

TEST(Remedies, EverySuggestionFits) {
  PlanRequest request = gpu(22);
  request.peak = kGiB;
  const auto facts = model_facts("llama-3.1-8b");
  const PlanReport report = report_of(facts, request);
  ASSERT_FALSE(report.fits);
  ASSERT_GT(report.max_model_len_fit, 0);
  EXPECT_GT(report.missing_bytes, 0);
  const auto suggestions = tools::remedies(facts, request, report);
  ASSERT_EQ(suggestions.size(), 4U);

  PlanRequest shorter = request;
  shorter.max_model_len = report.max_model_len_fit;
  EXPECT_TRUE(report_of(facts, shorter).fits);
  shorter.max_model_len = report.max_model_len_fit + 1;
  EXPECT_FALSE(report_of(facts, shorter).fits);
  EXPECT_EQ(suggestions[0], "--max-model-len " + std::to_string(report.max_model_len_fit) + " fits");
  EXPECT_EQ(suggestions[2], "--tp 2 fits");
}

TEST(Remedies, MoreMemoryIsAsMuchAsIsMissing) {
  PlanRequest request = gpu(40);
  request.weights = 30 * kGiB;
  request.utilization = 0.9;
  const auto facts = model_facts("llama-3.1-8b");
  const PlanReport report = report_of(facts, request);
  ASSERT_FALSE(report.fits);
  request.gpu_memory += static_cast<std::int64_t>(std::ceil(static_cast<double>(report.missing_bytes) / 0.9)) + 256;
  EXPECT_TRUE(report_of(facts, request).fits);
  request.gpu_memory -= 8192;
  EXPECT_FALSE(report_of(facts, request).fits);
}

TEST(Remedies, NothingToSayWhenItFits) {
  const auto facts = model_facts("llama-3.1-8b");
  EXPECT_TRUE(tools::remedies(facts, gpu(80), report_of(facts, gpu(80))).empty());
}

TEST(Plan, TheLongestLengthIsBoundedByTheModel) {
  PlanRequest request = gpu(80);
  request.max_model_len = 1000;
  EXPECT_EQ(report_of(model_facts("llama-3.1-8b"), request).max_model_len_fit, 131'072);
  request.max_model_len = 200'000;
  const PlanReport longer = report_of(model_facts("llama-3.1-8b"), request);
  EXPECT_EQ(longer.max_model_len_fit, 200'000);
  EXPECT_NE(std::find_if(
                longer.warnings.begin(), longer.warnings.end(),
                [](const std::string& text) { return text.find("exceeds the model's 131072") != std::string::npos; }),
            longer.warnings.end());
}

TEST(Plan, RequestsOutOfRangeAreNamed) {
  const auto facts = model_facts("llama-3.1-8b");
  const auto refusal = [&facts](const PlanRequest& request) {
    return tools::plan_model(facts, request).error().message;
  };
  PlanRequest request = gpu(80);
  request.utilization = 1.5;
  EXPECT_NE(refusal(request).find("--utilization 1.5"), std::string::npos);
  request = gpu(80);
  request.shard.block_size = 0;
  EXPECT_NE(refusal(request).find("--block-size 0"), std::string::npos);
  request = gpu(0);
  EXPECT_NE(refusal(request).find("--gpu-memory 0"), std::string::npos);
  request = gpu(80);
  request.shard.pipeline_parallel = 100'000;
  EXPECT_NE(refusal(request).find("--pp 100000"), std::string::npos);
  request = gpu(80);
  request.peak = -1;
  EXPECT_NE(refusal(request).find("--peak"), std::string::npos);
  request = gpu(80);
  request.max_model_len = std::int64_t{1} << 50;
  EXPECT_NE(refusal(request).find("--max-model-len"), std::string::npos);
}

// Parameters as the models' authors publish them, in thousands of millions.
TEST(Weights, AgreeWithThePublishedCounts) {
  const std::vector<std::pair<std::string, double>> published = {
      {"llama-2-13b", 13.02},  {"llama-3.1-8b", 8.03},       {"llama-3.1-70b", 70.55},  {"llama-3.1-405b", 405.85},
      {"qwen2.5-7b", 7.62},    {"qwen3-32b", 32.76},         {"qwen3-30b-a3b", 30.53},  {"mistral-7b-v0.1", 7.24},
      {"mixtral-8x7b", 46.70}, {"gemma-2-9b", 9.24},         {"phi-4", 14.66},          {"deepseek-v2", 235.74},
      {"deepseek-v3", 671.03}, {"gpt-oss-20b", 20.91},       {"gpt-oss-120b", 116.83},  {"jamba-v0.1", 51.57},
      {"nemotron-h-8b", 8.10}, {"mamba-codestral-7b", 7.29}, {"whisper-large-v3", 1.54}};
  for (const auto& [model, thousands_of_millions] : published) {
    const auto estimate = tools::estimate_weights(model_facts(model), 1, 1);
    ASSERT_TRUE(estimate.ok()) << model;
    EXPECT_NEAR(static_cast<double>(estimate->parameters) / 1e9 / thousands_of_millions, 1.0, 0.01) << model;
  }
}

TEST(Weights, StagesAndRanksShareThem) {
  const auto facts = model_facts("llama-3.1-70b");
  const auto one = tools::estimate_weights(facts, 1, 1);
  const auto split = tools::estimate_weights(facts, 4, 2);
  ASSERT_TRUE(one.ok() && split.ok());
  ASSERT_EQ(split->bytes_per_stage.size(), 2U);
  EXPECT_NEAR(static_cast<double>(split->bytes_per_stage[0] + split->bytes_per_stage[1]) * 4,
              static_cast<double>(one->bytes_per_stage[0]), 1e3);
  EXPECT_EQ(one->parameters, split->parameters);
}

TEST(Weights, QuantisedLayersCountTheirBits) {
  const auto fp8 = tools::estimate_weights(model_facts("deepseek-v3"), 1, 1);
  EXPECT_NEAR(static_cast<double>(fp8->bytes_per_stage[0]) / 1e9, 671 + 2 * 0.93, 2);
  const auto mxfp4 = tools::estimate_weights(model_facts("gpt-oss-120b"), 1, 1);
  EXPECT_NEAR(static_cast<double>(mxfp4->bytes_per_stage[0]) / 1e9, 65.2, 1);
}

// Digits, letters and whole numbers changed at random: an answer or an error, never a crash or an overflow.
TEST(Plan, DamagedConfigurationsAreAnsweredOrRefused) {
  std::mt19937_64 random(2024);
  const auto pick = [&random](std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most)(random); };
  const std::vector<std::string> numbers = {"0",    "-1", "1", "3", "1073741824", "1e9", "99999999999999999999",
                                            "null", "[]"};
  int planned = 0;
  int refused = 0;
  for (const std::string& model : all_models()) {
    std::ifstream file(std::string(KVPOOL_TEST_DATA) + "/models/" + model + ".json");
    const std::string original((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    for (int i = 0; i < 40; ++i) {
      std::string text = original;
      const std::size_t digit = text.find_first_of("0123456789", pick(text.size() - 1));
      if (digit == std::string::npos) continue;
      const std::size_t end = text.find_first_not_of("0123456789.", digit);
      text.replace(digit, end - digit, numbers[pick(numbers.size() - 1)]);
      if (i % 4 == 0) text[pick(text.size() - 1)] = static_cast<char>(pick(255));
      try {
        const auto report = tools::plan_model(tools::parse_model_config(model, text), gpu(80));
        ++(report ? planned : refused);
      } catch (const tools::InputError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(planned, 100);
  EXPECT_GT(refused, 100);
}

TEST(Reports, JsonHasExactlyTheDocumentedKeys) {
  const auto facts = model_facts("gemma-3-27b");
  const PlanReport report = report_of(facts, gpu(80));
  const auto json = tools::plan_json(report, {});
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"groups", "page_size_bytes", "bytes_per_token", "num_blocks", "num_tokens",
                                            "max_concurrency", "max_model_len_fit", "ledger"}));
  std::int64_t bytes = 0;
  for (const auto& entry : json["ledger"]["entries"]) bytes += entry["bytes"].get<std::int64_t>();
  EXPECT_EQ(bytes, json["ledger"]["total_bytes"].get<std::int64_t>());
  EXPECT_EQ(json["groups"].size(), 7U);
}

TEST(Reports, TextNamesNumbersAndSuggestions) {
  const auto facts = model_facts("llama-3.1-8b");
  const PlanReport report = report_of(facts, gpu(20));
  const std::string text = tools::plan_text(report, tools::remedies(facts, gpu(20), report));
  for (const char* part :
       {"full_attention", "num_blocks", "outside_utilization", "kv_blocks", "Does not fit", "--tp 2 fits"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << '\n' << text;
  }
}

TEST(Reports, BytesAreReadable) {
  EXPECT_EQ(tools::bytes_text(1023), "1023 B");
  EXPECT_EQ(tools::bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(tools::bytes_text(80 * kGiB), "80.00 GiB");
  EXPECT_EQ(tools::bytes_text(-2 * kGiB), "-2.00 GiB");
}

}  // namespace
}  // namespace kvpool
