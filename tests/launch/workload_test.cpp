#include "tools/launch/driver/workload.hpp"

#include <gtest/gtest.h>

#include <set>

namespace kvpool::launch {
namespace {

tools::Trace id_trace() {
  tools::Trace trace;
  trace.kind = tools::TraceKind::ids;
  trace.block_size = 512;
  const std::vector<tools::IdRun> first = {{0, 1}, {4, 2}};
  const std::vector<tools::IdRun> second = {{0, 1}, {4, 1}, {9, 1}};
  trace.add({0, -1, 1400, 513}, first);
  trace.add({1, 3, 1536, 1}, second);
  return trace;
}

TEST(Workload, ScalesLengthsUpwards) {
  const auto workload = Workload::create(id_trace(), "t", 16);
  ASSERT_TRUE(workload.ok()) << workload.error().message;
  EXPECT_EQ(workload->items()[0].prompt_tokens, 44);  // ceil(1400 * 16 / 512)
  EXPECT_EQ(workload->items()[0].output_tokens, 17);
  EXPECT_EQ(workload->items()[1].prompt_tokens, 48);
  EXPECT_EQ(workload->items()[1].output_tokens, 1);
  EXPECT_EQ(workload->items()[1].session, 3);
  EXPECT_EQ(workload->max_length(), 61);
}

TEST(Workload, TokensRepeatExactlyWhereIdsDo) {
  const auto workload = Workload::create(id_trace(), "t", 16);
  ASSERT_TRUE(workload.ok());
  const std::vector<TokenId> first = workload->prompt(0);
  const std::vector<TokenId> second = workload->prompt(1);
  ASSERT_EQ(first.size(), 44U);
  ASSERT_EQ(second.size(), 48U);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(first[i], second[i]) << i;
  std::set<TokenId> seen(first.begin(), first.end());
  EXPECT_EQ(seen.size(), first.size());
  for (std::size_t i = 32; i < second.size(); ++i) EXPECT_TRUE(seen.insert(second[i]).second) << i;
  for (std::int64_t i = 0; i < 17; ++i) EXPECT_TRUE(seen.insert(workload->output(0, i)).second) << i;
  EXPECT_TRUE(seen.insert(workload->output(1, 0)).second);
  EXPECT_EQ(workload->prompt(0), first);
}

TEST(Workload, TokensWithoutIdsAreUnique) {
  tools::Trace trace;
  trace.kind = tools::TraceKind::ids;
  trace.block_size = 64;
  const std::vector<tools::IdRun> runs = {{2, 1}};
  trace.add({0, 0, 100, 0}, runs);
  trace.add({1, 0, 100, 0}, runs);
  const auto workload = Workload::create(std::move(trace), "t", 64);
  ASSERT_TRUE(workload.ok());
  const std::vector<TokenId> first = workload->prompt(0);
  const std::vector<TokenId> second = workload->prompt(1);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(first[i] == second[i], i < 64) << i;
}

TEST(Workload, TokenTracesRunUnscaled) {
  tools::Trace trace;
  trace.kind = tools::TraceKind::tokens;
  const std::vector<TokenId> prompt = {7, 8, 9};
  const std::vector<TokenId> output = {10, 11};
  trace.add({0, 1, 3, 2}, 0, 0, prompt, output);
  trace.add({1, 1, 3, 1}, 0, 2, std::vector<TokenId>{5}, std::vector<TokenId>{6});
  const auto workload = Workload::create(std::move(trace), "t", 16);
  ASSERT_TRUE(workload.ok());
  EXPECT_EQ(workload->prompt(1), (std::vector<TokenId>{7, 8, 5}));
  EXPECT_EQ(workload->output(0, 1), 11);
  EXPECT_EQ(workload->items()[0].prompt_tokens, 3);
}

TEST(Workload, RefusesWhatTheScalingTakesOutOfRange) {
  tools::Trace empty;
  empty.kind = tools::TraceKind::ids;
  empty.block_size = 512;
  empty.add({0, -1, 0, 5}, {});
  const auto no_prompt = Workload::create(std::move(empty), "t.kvt", 16);
  ASSERT_FALSE(no_prompt.ok());
  EXPECT_EQ(no_prompt.error().code, ErrorCode::bad_input);
  EXPECT_NE(no_prompt.error().message.find("t.kvt: request 0: 0 prompt"), std::string::npos);

  tools::Trace large;
  large.kind = tools::TraceKind::ids;
  large.block_size = 1;
  large.add({0, -1, tools::kMaxRequestTokens, 5}, {});
  EXPECT_FALSE(Workload::create(std::move(large), "t", 1024).ok());

  tools::Trace ids;
  ids.kind = tools::TraceKind::ids;
  ids.block_size = 512;
  ids.add({0, -1, 10, 5}, std::vector<tools::IdRun>{{tools::kMaxTraceId, 1}});
  const auto id = Workload::create(std::move(ids), "t", 16);
  ASSERT_FALSE(id.ok());
  EXPECT_NE(id.error().message.find("too large"), std::string::npos);
}

}  // namespace
}  // namespace kvpool::launch
