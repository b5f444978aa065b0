#include "tools/launch/rank/rank_step.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "kvpool/config/kv_cache_groups.hpp"
#include "kvpool/config/memory_plan.hpp"
#include "kvpool/multigpu/thread_communicator.hpp"

namespace kvpool::launch {
namespace {

constexpr std::int64_t kBlockSize = 16;

ModelConfig tiny() {
  ModelConfig model;
  model.hidden_size = 32;
  model.num_query_heads = 4;
  model.num_kv_heads = 2;
  model.head_size = 8;
  return model;
}

/// One request that decodes token by token; its first block is `first_block`.
class Decode {
 public:
  explicit Decode(std::uint32_t first_block) : first_block_(first_block) {}

  [[nodiscard]] StepMessage next() {
    StepMessage message;
    StepSequence sequence;
    sequence.request = 7;
    sequence.num_computed = length_;
    sequence.num_outputs = 1;
    sequence.tokens = {TokenId{100 + length_}};
    std::vector<std::uint32_t> table = table_;
    if (table.size() * kBlockSize <= length_) table.push_back(first_block_ + static_cast<std::uint32_t>(table.size()));
    sequence.tables = {table_changes(table_, table)};
    sequence.slots = {{std::int64_t{table[length_ / kBlockSize]} * kBlockSize + length_ % kBlockSize}};
    table_ = table;
    ++length_;
    message.sequences = {sequence};
    return message;
  }

 private:
  std::uint32_t first_block_;
  std::uint32_t length_ = 0;
  std::vector<std::uint32_t> table_;
};

struct RankUnderTest {
  RankUnderTest(int rank, int ranks, Communicator& communicator)
      : slice(*head_slice_of(tiny().num_query_heads, tiny().num_kv_heads, rank, ranks)),
        model(tiny(), slice, best_row_product_tier()) {
    PlanOptions plan;
    plan.num_gpu_blocks_override = 10;
    const auto groups = get_kv_cache_groups(layer_specs(tiny(), slice, kBlockSize));
    const auto config = get_kv_cache_config_from_groups(*groups, 0, plan);
    storage = std::make_unique<KvStorage>(*KvStorage::allocate(tiny(), slice, *config, *host_device()));
    ExecutorOptions options;
    options.exec.max_threads = 1;
    step = std::make_unique<RankStep>(model, *storage, communicator, options);
  }

  HeadSlice slice;
  TinyModel model;
  std::unique_ptr<KvStorage> storage;
  std::unique_ptr<RankStep> step;
};

/// Runs steps on two ranks that were told different first blocks, and ends.
std::vector<std::vector<std::string>> alarms_of(std::uint32_t block_on_0, std::uint32_t block_on_1, int steps = 40) {
  auto communicators = make_thread_communicators(2);
  std::vector<std::vector<std::string>> alarms(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      RankUnderTest under_test(static_cast<int>(rank), 2, *communicators[rank]);
      Decode decode(rank == 0 ? block_on_0 : block_on_1);
      GatheredOutputs outputs;
      for (int i = 0; i < steps; ++i) {
        const Status status = under_test.step->run(decode.next(), outputs);
        ASSERT_TRUE(status.ok()) << status.error().message;
      }
      EXPECT_EQ(under_test.step->divergence_checks(), steps / 32);
      EXPECT_TRUE(under_test.step->compare_tables().ok());
      EXPECT_EQ(under_test.step->divergence_checks(), (steps + 31) / 32);
      alarms[rank] = under_test.step->alarms();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return alarms;
}

TEST(RankStep, EqualTablesRaiseNoAlarm) {
  for (const auto& alarms : alarms_of(3, 3)) EXPECT_TRUE(alarms.empty());
}

TEST(RankStep, TablesThatComeApartAreNamed) {
  for (const auto& alarms : alarms_of(3, 5, 32)) {
    ASSERT_EQ(alarms.size(), 1U);
    EXPECT_NE(alarms[0].find("sequence 7 index 0"), std::string::npos) << alarms[0];
    EXPECT_NE(alarms[0].find("block 3"), std::string::npos) << alarms[0];
    EXPECT_NE(alarms[0].find("block 5"), std::string::npos) << alarms[0];
  }
}

TEST(RankStep, ShortRunsAreComparedAtTheirEnd) {
  for (const int steps : {1, 5, 31, 32}) {
    for (const auto& alarms : alarms_of(3, 5, steps)) EXPECT_EQ(alarms.size(), 1U) << steps;
    for (const auto& alarms : alarms_of(3, 3, steps)) EXPECT_TRUE(alarms.empty()) << steps;
  }
}

TEST(RankStep, ABadStepIsAnErrorAndNotACrash) {
  auto communicators = make_thread_communicators(1);
  RankUnderTest under_test(0, 1, *communicators[0]);
  Decode decode(9);
  GatheredOutputs outputs;
  for (std::int64_t i = 0; i < kBlockSize; ++i) ASSERT_TRUE(under_test.step->run(decode.next(), outputs).ok());
  EXPECT_EQ(outputs.rows, 1);
  EXPECT_EQ(outputs.heads.size(), 2U * 4U * 8U);
  // The next block would be number 10 of 10.
  const Status status = under_test.step->run(decode.next(), outputs);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::layout_mismatch);
  EXPECT_NE(status.error().message.find("block 10 of 10"), std::string::npos) << status.error().message;
}

}  // namespace
}  // namespace kvpool::launch
