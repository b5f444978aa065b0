#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/replay/ops_replay.hpp"
#include "tools/replay/request_keys.hpp"
#include "tools/trace/input_error.hpp"
#include "tools/trace/trace.hpp"

namespace kvpool::tools {
namespace {

constexpr const char* kIds = "# kvtrace 1\n# kind ids\n# title a b\n# block_size 4\n";
constexpr const char* kTokens = "# kvtrace 1\n# kind tokens\n# title t\n# vocab 100\n";

Trace read_text(const std::string& text) {
  InputFile file("trace", {text.begin(), text.end()});
  return read_trace(file);
}

std::string problem_of(const std::string& text) {
  try {
    (void)read_text(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(KvtReader, IdLines) {
  const Trace trace = read_text(std::string(kIds) + "0 -1 10 3 2 0 2 7 1\n5 3 4 0 0\n");
  EXPECT_EQ(trace.kind, TraceKind::ids);
  EXPECT_EQ(trace.title, "a b");
  EXPECT_EQ(trace.block_size, 4);
  ASSERT_EQ(trace.size(), 2U);
  EXPECT_EQ(trace[0].input_tokens, 10);
  EXPECT_EQ(trace[0].output_tokens, 3);
  EXPECT_EQ(trace[0].session, -1);
  EXPECT_EQ(trace[1].time_ms, 5);
  EXPECT_EQ(std::vector<IdRun>(trace.runs(0).begin(), trace.runs(0).end()), (std::vector<IdRun>{{0, 2}, {7, 1}}));
  EXPECT_TRUE(trace.runs(1).empty());
}

TEST(KvtReader, TokenLinesShareBeginnings) {
  const Trace trace = read_text(std::string(kTokens) +
                                "0 0 3 1 -1 0 3 1 2 3 9\n"
                                "1 0 4 0 0 2 2 7 8\n"
                                "2 0 3 0 1 3 0\n"
                                "3 0 3 2 2 2 1 6 4 5\n");
  std::vector<TokenId> prompt;
  const auto expect_prompt = [&](std::size_t index, const std::vector<TokenId>& expected) {
    trace.prompt(index, prompt);
    EXPECT_EQ(prompt, expected) << index;
  };
  expect_prompt(0, {1, 2, 3});
  expect_prompt(1, {1, 2, 7, 8});
  expect_prompt(2, {1, 2, 7});
  expect_prompt(3, {1, 2, 6});
  EXPECT_EQ(std::vector<TokenId>(trace.output(3).begin(), trace.output(3).end()), (std::vector<TokenId>{4, 5}));
}

struct BadLine {
  const char* line;
  const char* problem;
};

TEST(KvtReader, BadIdLinesNameLineFieldAndValue) {
  for (const BadLine& bad : std::vector<BadLine>{
           {"-1 0 4 0 0", "trace:5: t: is outside 0..9007199254740992, got -1"},
           {"0 -2 4 0 0", "trace:5: session: is outside -1..4611686018427387904, got -2"},
           {"0 0 -4 0 0", "trace:5: in: is outside 0..1073741824, got -4"},
           {"0 0 99999999999999999999 0 0", "trace:5: in: is outside 0..1073741824, got 99999999999999999999"},
           {"0 0 4 9000000000 0", "trace:5: out: is outside 0..1073741824, got 9000000000"},
           {"0 0 4 0", "trace:5: k: is missing: the line ends before it"},
           {"0 0 4 0 2 1 1", "trace:5: k: is outside 0..1, got 2"},
           {"0 0 4 0 1 1", "trace:5: n: is missing: the line ends before it"},
           {"0 0 4 0 1 1 2", "trace:5: n: is outside 1..1, got 2"},
           {"0 0 4 0 1 1 0", "trace:5: n: is outside 1..1, got 0"},
           {"0 0 4 0 1 -1 1", "trace:5: s: is outside 0..4611686018427387904, got -1"},
           {"0 0 4 0 1 1 1 5", "trace:5: the line goes on after its last field, got 5"},
           {"0 0 4.5 0 0", "trace:5: in: is not an integer, got 4.5"},
           {"0  4 0 0", "trace:5: session: is not an integer, got nothing"},
           {"", "trace:5: t: is missing: the line ends before it"},
           {"zero 0 4 0 0", "trace:5: t: is not an integer, got zero"}}) {
    EXPECT_EQ(problem_of(std::string(kIds) + bad.line + "\n"), bad.problem);
  }
}

TEST(KvtReader, BadTokenLines) {
  const std::string good = "0 0 3 0 -1 0 3 1 2 3\n";
  for (const BadLine& bad : std::vector<BadLine>{
           {"0 0 1 0 1 1 0", "trace:6: base: is outside -1..0, got 1"},
           {"0 0 4 0 0 4 0", "trace:6: keep: is outside 0..3, got 4"},
           {"0 0 2 0 -1 1 1 5", "trace:6: keep: is outside 0..0, got 1"},
           {"0 0 2 0 0 1 2 5 6", "trace:6: m: is outside 1..1, got 2"},
           {"0 0 1 0 -1 0 1 100", "trace:6: p: is outside 0..99, got 100"},
           {"0 0 1 1 -1 0 1 5", "trace:6: o: is missing: the line ends before it"},
           {"0 0 1000000000 0 -1 0 1000000000 5", "trace:6: p: is missing: the line ends before it"}}) {
    EXPECT_EQ(problem_of(kTokens + good + bad.line + "\n"), bad.problem);
  }
}

TEST(KvtReader, BadHeaders) {
  EXPECT_EQ(problem_of(""), "trace: is empty");
  EXPECT_EQ(problem_of("# kvtrace 2\n"), "trace:1: kvtrace: is outside 1..1, got 2");
  EXPECT_EQ(problem_of("# kind ids\n# block_size 4\n0 0 0 0 0\n"), "trace:3: kvtrace: is missing from the header");
  EXPECT_EQ(problem_of("# kvtrace 1\n0 0 0 0 0\n"), "trace:2: kind: is missing from the header");
  EXPECT_EQ(problem_of("# kvtrace 1\n# kind words\n"), "trace:2: kind: is neither 'ids' nor 'tokens', got words");
  EXPECT_EQ(problem_of("# kvtrace 1\n# kind ids\n"), "trace:2: block_size: is missing from the header");
  EXPECT_EQ(problem_of("# kvtrace 1\n# kind ids\n# block_size 0\n"),
            "trace:3: block_size: is outside 1..1048576, got 0");
  EXPECT_NE(problem_of("hello\n").find("trace:1: no known trace"), std::string::npos);
  EXPECT_NE(problem_of("# kvtrace-ops 1\n").find("operation log"), std::string::npos);
}

// A chain of prompts that each take all but one token from the one before: time and memory must stay linear.
TEST(KvtReader, LongChainsOfBasesStayCheap) {
  std::string text = std::string(kTokens) + "0 0 2 0 -1 0 2 1 2\n";
  constexpr int kLength = 20'000;
  for (int i = 0; i < kLength; ++i) {
    text += "0 0 2 0 " + std::to_string(i) + (i % 2 == 0 ? " 1 1 3\n" : " 2 0\n");
  }
  const Trace trace = read_text(text);
  std::vector<TokenId> prompt;
  trace.prompt(trace.size() - 1, prompt);
  EXPECT_EQ(prompt, (std::vector<TokenId>{1, 3}));
}

TEST(MooncakeReader, ReadsItsOwnFormat) {
  const Trace trace =
      read_text(R"({"timestamp": 27482, "input_length": 1500, "output_length": 52, "hash_ids": [46, 47, 2366]})"
                "\n"
                R"({"timestamp": 30535.6, "input_length": 0, "output_length": 1, "hash_ids": [], "more": 1})");
  ASSERT_EQ(trace.size(), 2U);
  EXPECT_EQ(trace.block_size, 512);
  EXPECT_EQ(trace[0].session, -1);
  EXPECT_EQ(trace[1].time_ms, 30536);
  EXPECT_EQ(std::vector<IdRun>(trace.runs(0).begin(), trace.runs(0).end()), (std::vector<IdRun>{{46, 2}, {2366, 1}}));
}

TEST(MooncakeReader, BadLinesNameFieldAndValue) {
  for (const BadLine& bad :
       std::vector<BadLine>{{R"({"timestamp":-1,"input_length":1,"output_length":1,"hash_ids":[]})",
                             "trace:1: timestamp: is outside 0..9007199254740992, got -1"},
                            {R"({"timestamp":1,"input_length":1e99,"output_length":1,"hash_ids":[]})",
                             "trace:1: input_length: is not an integer, got 1e+99"},
                            {R"({"timestamp":1,"input_length":18446744073709551615,"output_length":1,"hash_ids":[]})",
                             "trace:1: input_length: is outside 0..1073741824, got 18446744073709551615"},
                            {R"({"timestamp":1,"input_length":1,"hash_ids":[]})", "trace:1: output_length: is missing"},
                            {R"({"timestamp":1,"input_length":1,"output_length":1,"hash_ids":7})",
                             "trace:1: hash_ids: is not a list, got 7"},
                            {R"({"timestamp":1,"input_length":1,"output_length":1,"hash_ids":["x"]})",
                             "trace:1: hash_ids: is not an integer, got \"x\""},
                            {R"({"timestamp":1,"input_length":1,"output_length":1,"hash_ids":[1,2]})",
                             "trace:1: hash_ids: has 2 ids, but the prompt has only 1 blocks of 512 tokens"},
                            {R"({"timestamp":1,"timestamp":1})", "trace:1: timestamp: appears twice in one object"}}) {
    EXPECT_EQ(problem_of(bad.line), bad.problem);
  }
  EXPECT_NE(problem_of("{\"timestamp\":").find("trace:1: column"), std::string::npos);
}

TEST(Keys, FollowIdsAndTheirParts) {
  const Trace trace = read_text(std::string(kIds) + "0 -1 10 3 1 5 3\n0 -1 8 0 1 5 2\n");
  RequestKeys first;
  RequestKeys second;
  KeyMaker whole(trace, 4, true);
  whole.make(0, first);
  whole.make(1, second);
  EXPECT_EQ(first.blocks, 4);
  EXPECT_EQ(first.keys.size(), 3U);  // the third holds prompt and output tokens: a key that nothing else has
  EXPECT_EQ(first.readable, 2U);
  EXPECT_EQ(second.readable, 1U) << "the last prompt token is always computed";
  EXPECT_EQ(first.keys[0], second.keys[0]);
  EXPECT_EQ(first.keys[1], second.keys[1]);
  KeyMaker halves(trace, 2, false);
  halves.make(0, first);
  halves.make(1, second);
  EXPECT_EQ(first.blocks, 5);
  EXPECT_EQ(first.keys.size(), 5U);
  EXPECT_EQ(first.keys[3], second.keys[3]);
  EXPECT_NE(first.keys[2], first.keys[3]);
  EXPECT_THROW(KeyMaker(trace, 3, true), std::invalid_argument);
}

std::string ops_problem(const std::string& text) {
  InputFile file("log", {text.begin(), text.end()});
  LineReader lines(file);
  std::string_view first;
  if (!lines.next(first)) {
    return "empty";
  }
  try {
    return replay_ops_log(lines, first).message;
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(OpsLog, FirstDifferenceNamesItsLine) {
  const std::string head = "# kvtrace-ops 1\n# capacity 2\n# block_size 2\ninit\n= ok\nq 1 2\n";
  EXPECT_EQ(ops_problem(head + "admit 0 5 5 5\n= ok hit 0 evict 0 blocks 1 2\nq\n"), "");
  EXPECT_EQ(ops_problem(head + "admit 0 5 5 5\n= ok hit 1 evict 0 blocks 1 2\nq\n"),
            "log:8: result: expected ok hit 1 evict 0 blocks 1 2, got ok hit 0 evict 0 blocks 1 2");
  EXPECT_EQ(ops_problem(head + "admit 0 5\n= ok hit 0 evict 0 blocks 1\nq 2*\n"), "log:9: queue: expected 2*, got 2");
  EXPECT_EQ(ops_problem(head + "free 3\n= ok\nq 1 2\n"), "log:7: request: is not live, got 3");
  EXPECT_EQ(ops_problem(head + "evict 3\n= ok\nq 1 2\n"), "log:7: operation: is unknown, got evict");
  EXPECT_EQ(ops_problem(head + "reset\n= ok\n"), "log:8: queue: is missing: the log ends inside an entry");
  EXPECT_EQ(ops_problem("# kvtrace-ops 1\n# capacity 2\n"), "log:2: block_size: is missing from the header");
  EXPECT_EQ(ops_problem("# kvtrace-ops 1\n# capacity 99999999999\n"),
            "log:2: capacity: is outside 1..1048576, got 99999999999");
}

}  // namespace
}  // namespace kvpool::tools
