// Ranks that hold different layers: the stages together must be the model, and its memory that of the smallest.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "fake_storage.hpp"
#include "multigpu/agreement_messages.hpp"
#include "multigpu/pipeline_cover.hpp"
#include "thread_ranks.hpp"

namespace kvpool {
namespace {

using namespace std::chrono_literals;
using testing::FakeStorage;
using testing::on_thread_ranks;

std::vector<std::string> layers(int first, int last) {
  std::vector<std::string> names;
  for (int i = first; i < last; ++i) names.push_back("layer." + std::to_string(i));
  return names;
}

PipelineStage stage(int index, int first, int last, int model) {
  return {index, layers(first, last), layers(0, model)};
}

struct Part {
  PipelineStage stage;
  std::int64_t limit = 100;
};

/// The outcome of all ranks, which must be the same on each.
std::string outcome(const std::vector<Part>& parts, const AgreementOptions& extra = {}) {
  std::vector<std::string> texts(parts.size());
  on_thread_ranks(static_cast<int>(parts.size()), [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    RankView view = testing::view_of(parts[rank].limit);
    view.stage = parts[rank].stage;
    AgreementOptions options = extra;
    options.deadline = 10s;
    FakeStorage storage;
    const auto agreement = RankCoordinator(comm, options).agree(view, storage);
    texts[rank] =
        agreement ? "ok " + std::to_string(agreement->num_blocks.front()) : testing::to_text(agreement.error());
    EXPECT_EQ(storage.held.empty(), !agreement.ok());
  });
  for (const auto& text : texts) EXPECT_EQ(text, texts[0]);
  return texts[0];
}

TEST(Pipeline, StagesOfDifferentSizeAndMemoryAgreeOnTheSmallest) {
  EXPECT_EQ(outcome({{stage(0, 0, 3, 8), 900}, {stage(1, 3, 8, 8), 511}}), "ok 511");
  EXPECT_EQ(outcome({{stage(0, 0, 5, 8), 512}, {stage(0, 0, 5, 8), 700}, {stage(1, 5, 8, 8), 90}, {stage(1, 5, 8, 8)}}),
            "ok 90")
      << "two stages of two ranks each";
  EXPECT_EQ(outcome({{stage(0, 0, 4, 4), 7}}), "ok 7") << "a world of one rank";
}

TEST(Pipeline, ALayerOnNoRankIsNamed) {
  EXPECT_EQ(outcome({{stage(0, 0, 3, 8)}, {stage(1, 4, 8, 8)}}),
            "layout_mismatch -1 no pipeline stage holds layer.3 of the model's 8 layers");
  EXPECT_EQ(outcome({{stage(0, 0, 1, 8)}, {stage(1, 7, 8, 8)}}),
            "layout_mismatch -1 no pipeline stage holds layer.1, layer.2, layer.3, layer.4 and 2 more of the model's 8 "
            "layers");
  EXPECT_EQ(outcome({{stage(0, 0, 3, 4)}}),
            "layout_mismatch -1 no pipeline stage holds layer.3 of the model's 4 layers");
}

TEST(Pipeline, ALayerInTwoStagesIsNamedWithBothRanks) {
  EXPECT_EQ(outcome({{stage(0, 0, 5, 8)}, {stage(1, 4, 8, 8)}}),
            "layout_mismatch 1 layer layer.4 is on rank 0 (stage 0) and on rank 1 (stage 1)");
}

TEST(Pipeline, RanksOfOneStageHoldTheSameLayers) {
  EXPECT_EQ(outcome({{stage(0, 0, 4, 8)}, {stage(0, 0, 5, 8)}, {stage(1, 5, 8, 8)}}),
            "layout_mismatch 1 rank 1 and rank 0 are both of pipeline stage 0, but hold different layers");
}

TEST(Pipeline, ALayerTheModelDoesNotHaveIsNamed) {
  EXPECT_EQ(outcome({{stage(0, 0, 4, 8)}, {stage(1, 4, 9, 8)}}),
            "layout_mismatch 1 rank 1 holds layer layer.8, which the model does not have");
}

TEST(Pipeline, OtherModelsAndMissingStagesAreALayoutMismatch) {
  const std::string text = outcome({{stage(0, 0, 4, 8)}, {stage(0, 0, 4, 8)}, {stage(1, 4, 8, 9)}});
  EXPECT_EQ(text.substr(0, 49), "layout_mismatch 2 rank 2: agreement model_layers ") << text;
  const std::vector<std::optional<PipelineStage>> half = {stage(0, 0, 8, 8), std::nullopt};
  const auto error = multigpu::find_gap_in_pipeline(half);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message, "rank 1 names no pipeline stage, rank 0 does");
  const std::vector<std::optional<PipelineStage>> none(3);
  EXPECT_FALSE(multigpu::find_gap_in_pipeline(none));
}

TEST(Pipeline, AStageWithoutRoomAndAnOverrideTooLargeForOneAreNamed) {
  EXPECT_EQ(outcome({{stage(0, 0, 4, 8)}, {stage(1, 4, 8, 8), 0}}),
            "out_of_memory 1 rank 1 can hold 0 blocks in pool 0, at least 1 are needed");
  AgreementOptions options;
  options.num_blocks_override = {60};
  EXPECT_EQ(outcome({{stage(0, 0, 4, 8)}, {stage(1, 4, 8, 8), 59}}, options),
            "out_of_memory 1 rank 1 can hold 59 blocks in pool 0, the override asks for 60");
  EXPECT_EQ(outcome({{stage(0, 0, 4, 8)}, {stage(1, 4, 8, 8), 60}}, options), "ok 60");
  EXPECT_EQ(outcome({{stage(0, 0, 8, 8), 0}}),
            "out_of_memory 0 rank 0 can hold 0 blocks in pool 0, at least 1 are needed");
}

TEST(Pipeline, NoPrefixOfAHelloWithAStageIsTakenForTheWhole) {
  multigpu::HelloMessage hello{1, 2, 1, {}, {}, std::string(64, 'f'), stage(3, 0, 3, 3)};
  const Bytes bytes = encode(hello);
  const auto back = multigpu::decode_hello(bytes);
  ASSERT_TRUE(back && back->stage);
  EXPECT_EQ(back->stage->index, 3);
  EXPECT_EQ(back->stage->layers, layers(0, 3));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(multigpu::decode_hello(std::span(bytes).first(length)).has_value()) << length;
  }
  Bytes many = bytes;
  many[many.size() - 3 * (4 + 7) - 2] = std::byte{0xff};  // a count of layers far beyond the message
  EXPECT_FALSE(multigpu::decode_hello(many).has_value());
}

}  // namespace
}  // namespace kvpool
