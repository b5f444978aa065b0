// Bytes, groups and blocks of every published model, against numbers worked out by hand from its head counts.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "kvpool/config/memory_plan.hpp"
#include "plan_fixture.hpp"
#include "tools/plan/ledger.hpp"

namespace kvpool {
namespace {

using namespace test;
using tools::PlanReport;
using tools::PlanRequest;

constexpr std::int64_t kLength = 32'768;  // tokens of one request, in every row

/// One model on one GPU of `ranks`, blocks of 16 tokens unless a state needs longer ones.
struct Row {
  std::string model;
  std::int64_t ranks;
  std::int64_t layer_token_bytes;  ///< of one token in one attention layer, 0 where there is none
  std::int64_t attention_layers;   ///< that keep the decoder's tokens
  std::int64_t groups;
  std::int64_t layers_of_a_group;  ///< of the largest one
  std::int64_t block_tokens;
  std::int64_t page_bytes;
  std::int64_t request_blocks;  ///< of one request of kLength tokens, 8192 tokens in flight
};

// K and V of `heads` heads of `size` elements of two bytes.
constexpr std::int64_t kv(std::int64_t heads, std::int64_t size) { return heads * 2 * size * 2; }

constexpr std::int64_t kWhole = kLength / 16;
constexpr std::int64_t kLatent = 576 * 2;
// Keys of an indexer: 128 bytes and one scale.
constexpr std::int64_t kIndex = 128 + 4;

// Windows: ceil((W - 1 + 8192) / 16) + 1. Chunks: (C + 8192) / 16. States in mode "align": 2 a group.
constexpr std::int64_t kWindow4096 = 768 + 1;
constexpr std::int64_t kWindow1024 = 576 + 1;
constexpr std::int64_t kWindow128 = 520 + 1;
constexpr std::int64_t kChunk8192 = 1024;

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"llama-2-13b", 1, kv(40, 128), 40, 1, 40, 16, 327'680, kWhole},
      {"llama-2-13b", 4, kv(10, 128), 40, 1, 40, 16, 81'920, kWhole},
      {"llama-3.1-8b", 1, kv(8, 128), 32, 1, 32, 16, 65'536, kWhole},
      {"llama-3.1-8b", 16, kv(1, 128), 32, 1, 32, 16, 8'192, kWhole},
      {"llama-3.1-70b", 1, kv(8, 128), 80, 1, 80, 16, 65'536, kWhole},
      {"llama-3.1-405b", 8, kv(1, 128), 126, 1, 126, 16, 8'192, kWhole},
      {"qwen2.5-7b", 1, kv(4, 128), 28, 1, 28, 16, 32'768, kWhole},
      {"qwen3-32b", 1, kv(8, 128), 64, 1, 64, 16, 65'536, kWhole},
      {"qwen3-30b-a3b", 1, kv(4, 128), 48, 1, 48, 16, 32'768, kWhole},
      {"mistral-7b-v0.1", 1, kv(8, 128), 32, 1, 32, 16, 65'536, kWindow4096},
      {"mistral-7b-v0.3", 1, kv(8, 128), 32, 1, 32, 16, 65'536, kWhole},
      {"mixtral-8x7b", 2, kv(4, 128), 32, 1, 32, 16, 32'768, kWhole},
      {"phi-4", 1, kv(10, 128), 40, 1, 40, 16, 81'920, kWhole},
      {"glm-4.5", 8, kv(1, 128), 92, 1, 92, 16, 8'192, kWhole},
      {"gemma-2-9b", 1, kv(8, 256), 42, 2, 21, 16, 131'072, kWhole + kWindow4096},
      {"gemma-3-27b", 1, kv(16, 128), 62, 7, 10, 16, 131'072, kWhole + 6 * kWindow1024},
      {"llama-4-scout", 8, kv(1, 128), 48, 4, 12, 16, 8'192, kWhole + 3 * kChunk8192},
      {"gpt-oss-20b", 1, kv(8, 64), 24, 2, 12, 16, 32'768, kWhole + kWindow128},
      {"gpt-oss-120b", 2, kv(4, 64), 36, 2, 18, 16, 16'384, kWhole + kWindow128},
      {"deepseek-v2", 8, kLatent, 60, 1, 60, 16, 18'432, kWhole},
      {"deepseek-v3", 8, kLatent, 61, 1, 61, 16, 18'432, kWhole},
      {"deepseek-r1", 1, kLatent, 61, 1, 61, 16, 18'432, kWhole},
      {"deepseek-v3.2", 8, kLatent + kIndex, 61, 1, 61, 16, 18'432, kWhole},
      {"kimi-k2", 16, kLatent, 61, 1, 61, 16, 18'432, kWhole},
      // States: convolution and recurrent part in two bytes; the attention block is the next multiple of 16 that holds
      // them: (8192 x 3 + 32 x 128 x 128) x 2 = 1,097,728 bytes at 2,048 a token.
      {"qwen3-next-80b-a3b", 1, kv(2, 256), 12, 4, 12, 544, 1'114'112, 61 + 3 * 2},
      {"jamba-v0.1", 1, kv(8, 128), 4, 8, 4, 80, 327'680, 410 + 7 * 2},
      {"nemotron-h-8b", 1, kv(8, 128), 4, 7, 4, 528, 2'162'688, 63 + 6 * 2},
      {"mamba-codestral-7b", 1, 0, 0, 1, 64, 16, 2'158'592, 2},
      // The encoder's 1500 and 4 x 1601 tokens take 94 and 401 blocks.
      {"whisper-large-v3", 1, kv(20, 64), 32, 2, 32, 16, 81'920, kWhole + 94},
      {"llama-3.2-11b-vision", 1, kv(8, 128), 32, 5, 8, 16, 65'536, 4 * kWhole + 401},
  };
  return table;
}

class ModelBytes : public testing::TestWithParam<Row> {};

TEST_P(ModelBytes, AgreeWithArithmeticOnTheHeads) {
  const Row& row = GetParam();
  PlanRequest request = gpu(200, row.ranks);
  request.max_model_len = kLength;
  request.weights = 20 * kGiB;
  request.peak = 3 * kGiB;
  const PlanReport report = report_of(model_facts(row.model), request);

  EXPECT_EQ(static_cast<std::int64_t>(report.groups.size()), row.groups);
  EXPECT_EQ(report.groups.front().block_size, row.block_tokens);
  EXPECT_EQ(report.page_size_bytes, row.page_bytes);
  EXPECT_DOUBLE_EQ(report.bytes_per_token, static_cast<double>(row.layer_token_bytes * row.attention_layers));
  const bool indexed = row.model == "deepseek-v3.2";
  const std::int64_t block = row.layers_of_a_group * (indexed ? 16 * row.layer_token_bytes : row.page_bytes);
  EXPECT_EQ(report.bytes_per_block, block);
  EXPECT_EQ(report.blocks_per_request, row.request_blocks);
  // 0.92 x 200 GiB = 197,568,495,616 bytes exactly, as is their share for the cache.
  const std::int64_t available = 197'568'495'616 - 23 * kGiB;
  EXPECT_EQ(report.num_blocks, available / block);
  EXPECT_DOUBLE_EQ(report.max_concurrency,
                   static_cast<double>(available / block) / static_cast<double>(row.request_blocks));
}

INSTANTIATE_TEST_SUITE_P(Published, ModelBytes, testing::ValuesIn(rows()), [](const auto& param) {
  std::string name = param.param.model + "_on_" + std::to_string(param.param.ranks);
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
  return name;
});

TEST(ModelBytesTable, HasEveryModel) {
  std::set<std::string> tested;
  for (const Row& row : rows()) tested.insert(row.model);
  std::set<std::string> present;
  for (const auto& file : std::filesystem::directory_iterator(std::string(KVPOOL_TEST_DATA) + "/models")) {
    if (file.path().extension() == ".json") present.insert(file.path().stem().string());
  }
  EXPECT_EQ(tested, present);
}

TEST(IndexedModels, Fp8KeepsTheRotatedPartIn16Bits) {
  tools::ShardOptions options;
  options.kv_dtype = tools::KvDType::fp8;
  const auto layers = layers_of(model_facts("deepseek-v3.2"), options).stages[0];
  ASSERT_EQ(layers.size(), 2U * 61);
  EXPECT_EQ(page_size_bytes(to_group_spec(layers[0].spec)), 16 * (512 + 4 * 4 + 64 * 2));
  EXPECT_EQ(page_size_bytes(to_group_spec(layers[1].spec)), 16 * (128 + 4)) << "an indexer's keys are fp8 anyway";
}

// Live at once in a step of 8192 tokens: residual stream, input and output of a layer, and the wider of its mixer's
// and its feed-forward's tensors; the last stage adds the logits of 256 requests in 4 bytes.
TEST(Activations, AreEstimatedFromTheWidestLayer) {
  const auto peak = [](const std::string& model, std::int64_t ranks, std::int64_t stages, std::size_t stage) {
    PlanRequest request = gpu(200, ranks);
    request.shard.pipeline_parallel = stages;
    const PlanReport report = report_of(model_facts(model), request);
    for (const tools::LedgerEntry& entry : report.ledger) {
      if (entry.name == "peak_activations" && entry.stage == static_cast<std::int64_t>(stage)) return entry.bytes;
    }
    return std::int64_t{-1};
  };
  const std::int64_t logits = 256 * 128'256 * 4;
  EXPECT_EQ(peak("llama-3.1-8b", 1, 1, 0), 8192 * 2 * (3 * 4096 + 3 * 14'336) + logits);
  EXPECT_EQ(peak("llama-3.1-8b", 2, 1, 0), 8192 * 2 * (3 * 4096 + 3 * 14'336 / 2) + logits);
  EXPECT_EQ(peak("llama-3.1-8b", 1, 2, 0), 8192 * 2 * (3 * 4096 + 3 * 14'336));
  EXPECT_EQ(peak("llama-3.1-8b", 1, 2, 1), 8192 * 2 * (3 * 4096 + 3 * 14'336) + logits);
  // Each of 8192 tokens visits 2 experts of width 14,336.
  EXPECT_EQ(peak("mixtral-8x7b", 1, 1, 0), 8192 * 2 * (3 * 4096 + 2 * (4096 + 3 * 14'336)) + 256 * 32'000 * 4);
}

TEST(Activations, GivenOnesAreTakenAsTheyAre) {
  PlanRequest request = gpu(80);
  request.peak = 0;
  const PlanReport report = report_of(model_facts("llama-3.1-8b"), request);
  for (const tools::LedgerEntry& entry : report.ledger) {
    if (entry.name != "peak_activations") continue;
    EXPECT_EQ(entry.bytes, 0);
    EXPECT_EQ(entry.source, "given");
  }
  for (const std::string& warning : report.warnings) EXPECT_EQ(warning.find("activations"), std::string::npos);
}

}  // namespace
}  // namespace kvpool
