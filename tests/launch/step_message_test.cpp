#include "tools/launch/step/step_message.hpp"

#include <gtest/gtest.h>

#include <random>

#include "tools/launch/rank/rank_memory.hpp"

namespace kvpool::launch {
namespace {

StepMessage sample() {
  StepMessage message;
  message.step = 41;
  message.num_groups = 2;
  message.removed = {7, 9};
  message.copies = {{3, 4}, {5, 6}};
  StepSequence first;
  first.request = 12;
  first.num_computed = 30;
  first.num_outputs = 1;
  first.tokens = {-1, 5000000000, 3};
  first.tables = {{3, {{0, {8}}, {2, {11}}}}, {3, {{0, {0, 0}}, {2, {12}}}}};
  first.slots = {{142, 143, 176}, {1, 2, 3}};
  StepSequence second;
  second.request = 13;
  second.tokens = {4};
  second.tables = {{1, {{0, {1}}}}, {1, {}}};
  second.slots = {{16}, {-1}};
  message.sequences = {first, second};
  return message;
}

TEST(StepMessage, SurvivesTheWire) {
  const StepMessage message = sample();
  const auto decoded = decode_step(encode(message));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, message);
  EXPECT_EQ(decoded->num_tokens(), 4);
  EXPECT_EQ(decoded->sequences[0].length(), 33);

  for (const StepKind kind : {StepKind::hold, StepKind::finish}) {
    StepMessage last;
    last.kind = kind;
    const auto end = decode_step(encode(last));
    ASSERT_TRUE(end.ok());
    EXPECT_EQ(*end, last);
  }
}

TEST(StepMessage, EveryTruncationIsRefused) {
  const std::vector<std::byte> bytes = encode(sample());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto decoded = decode_step(std::span(bytes).first(size));
    ASSERT_FALSE(decoded.ok()) << size << " of " << bytes.size() << " bytes";
    EXPECT_EQ(decoded.error().code, ErrorCode::bad_input);
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_step(longer).ok());
}

TEST(StepMessage, EveryFlippedByteIsRefused) {
  const std::vector<std::byte> bytes = encode(sample());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const std::byte flip : {std::byte{0x01}, std::byte{0x80}, std::byte{0xff}}) {
      std::vector<std::byte> damaged = bytes;
      damaged[i] ^= flip;
      ASSERT_FALSE(decode_step(damaged).ok()) << "byte " << i;
    }
  }
}

TEST(StepMessage, GarbageIsRefused) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    EXPECT_FALSE(decode_step(bytes).ok());
  }
}

TEST(StepMessage, ImpossibleContentIsRefusedWithItsField) {
  const auto problem_of = [](const StepMessage& message) {
    const auto decoded = decode_step(encode(message));
    return decoded.ok() ? std::string("accepted") : decoded.error().message;
  };
  StepMessage empty = sample();
  empty.sequences[1].tokens.clear();
  empty.sequences[1].slots = {{}, {}};
  EXPECT_NE(problem_of(empty).find("a sequence without tokens"), std::string::npos);

  StepMessage outputs = sample();
  outputs.sequences[0].num_outputs = 4;
  EXPECT_NE(problem_of(outputs).find("4 of 3 tokens"), std::string::npos);

  StepMessage run = sample();
  run.sequences[0].tables[0].length = 2;
  EXPECT_NE(problem_of(run).find("of a table of 2"), std::string::npos);

  StepMessage groups = sample();
  groups.num_groups = 5000;
  EXPECT_NE(problem_of(groups).find("groups"), std::string::npos);
}

TEST(RankMemory, SurvivesTheWireAndNothingElseDoes) {
  RankMemory memory;
  memory.rank = 3;
  memory.total = std::int64_t{1} << 40;
  memory.peak = 5;
  memory.non_pool = 4;
  memory.available = 1 << 30;
  memory.num_blocks = 77;
  memory.backend = "cpu";
  memory.device = "host";
  memory.ledger = {{"total", memory.total}, {"weights", 12}, {"other_processes", std::nullopt}};
  const Bytes bytes = encode(memory);
  const auto decoded = decode_rank_memory(bytes, 3);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(decoded->total, memory.total);
  EXPECT_EQ(decoded->num_blocks, 77);
  EXPECT_EQ(decoded->device, "host");
  ASSERT_EQ(decoded->ledger.size(), 3U);
  EXPECT_EQ(decoded->ledger[1].key, "weights");
  EXPECT_EQ(decoded->ledger[1].bytes, 12);
  EXPECT_EQ(decoded->ledger[2].bytes, std::nullopt);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = decode_rank_memory(std::span(bytes).first(size), 3);
    ASSERT_FALSE(cut.ok()) << size;
    EXPECT_EQ(cut.error().rank, 3);
  }
  EXPECT_FALSE(decode_rank_memory(bytes, 2).ok());
  Bytes longer = bytes;
  longer.push_back(std::byte{1});
  EXPECT_FALSE(decode_rank_memory(longer, 3).ok());
}

}  // namespace
}  // namespace kvpool::launch
