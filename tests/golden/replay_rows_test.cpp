// Replays of real traces: every counter and the digest must be those that other programs computed.
//
// By default rows beyond a number of block-table entries are left to KVPOOL_TEST_SCALE=long, which runs all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "tools/replay/ops_replay.hpp"
#include "tools/replay/replayer.hpp"

namespace kvpool::tools {
namespace {

#ifdef KVPOOL_SANITIZED_BUILD
constexpr std::uint64_t kMostEntries = 160'000;
constexpr std::uint64_t kEveryRow = 8;
#else
constexpr std::uint64_t kMostEntries = 1'800'000;
constexpr std::uint64_t kEveryRow = 1;
#endif

bool long_run() {
  const char* scale = std::getenv("KVPOOL_TEST_SCALE");
  return scale != nullptr && std::string(scale) == "long";
}

std::string trace_folder() { return std::string(KVPOOL_TEST_DATA) + "/traces/"; }

Json read_expected(const std::string& trace) {
  std::ifstream file(trace_folder() + "golden/" + trace + ".json");
  return Json::parse(file);
}

ReplayOptions options_of(const Json& row) {
  ReplayOptions options;
  options.block_size = row["block_size"].get<std::int64_t>();
  options.capacity = row["capacity"].get<std::int64_t>();
  options.window = row["window"].get<std::int64_t>();
  options.duplicates = row["duplicates"] == "skip" ? DuplicatePolicy::skip : DuplicatePolicy::keep;
  options.hash_output = row["output"] == "hashed";
  if (!row["first_requests"].is_null()) {
    options.first_requests = row["first_requests"].get<std::int64_t>();
  }
  return options;
}

std::uint64_t entries_of(const Json& row) {
  return row["hit_blocks"].get<std::uint64_t>() + row["allocated_blocks"].get<std::uint64_t>();
}

const Trace& trace_of(std::map<std::int64_t, Trace>& read, const std::string& name, const ReplayOptions& options) {
  const std::int64_t first = options.first_requests.value_or(0);
  const auto found = read.find(first);
  if (found != read.end()) {
    return found->second;
  }
  const std::uint64_t limit = first == 0 ? kMaxTraceRequests : static_cast<std::uint64_t>(first);
  return read.emplace(first, read_trace(trace_folder() + name + ".kvt.gz", limit)).first->second;
}

void expect_row(const Json& expected, const Json& actual) {
  for (const auto& [field, value] : expected.items()) {
    ASSERT_TRUE(actual.contains(field)) << field;
    EXPECT_EQ(value, actual[field]) << field << " of row " << expected;
  }
}

class TraceRows : public testing::TestWithParam<std::string> {};

TEST_P(TraceRows, EqualFieldForField) {
  const Json expected = read_expected(GetParam());
  std::map<std::int64_t, Trace> read;
  std::uint64_t smallest = UINT64_MAX;
  for (const Json& row : expected["rows"]) {
    smallest = std::min(smallest, entries_of(row));
  }
  std::uint64_t compared = 0;
  std::uint64_t number = 0;
  for (const Json& row : expected["rows"]) {
    const std::uint64_t entries = entries_of(row);
    const bool only_small_one = entries == smallest && smallest > kMostEntries && compared == 0;
    const bool wanted = only_small_one || (entries <= kMostEntries && number++ % kEveryRow == 0);
    if (!wanted && !long_run()) {
      continue;
    }
    const ReplayOptions options = options_of(row);
    const ReplayResult result = replay(trace_of(read, GetParam(), options), options);
    ASSERT_TRUE(result.invariants.ok()) << result.invariants.error().message;
    expect_row(row, to_json(GetParam(), options, result));
    ++compared;
  }
  std::cout << compared << " of " << expected["rows"].size() << " rows compared\n";
  EXPECT_GT(compared, 0U);
}

// Sessions go to different threads, which evict from each other; what must hold is what no interleaving may break.
class TraceThreads : public testing::TestWithParam<std::string> {};

TEST_P(TraceThreads, EightThreadsKeepEveryInvariant) {
  const Json rows = read_expected(GetParam())["rows"];
  ReplayOptions options = options_of(rows.front());
  options.threads = 8;
  options.window = 4;
#ifdef KVPOOL_SANITIZED_BUILD
  constexpr std::uint64_t kRequests = 60;
#else
  constexpr std::uint64_t kRequests = 400;
#endif
  const bool small = rows.front()["allocated_blocks"].get<std::uint64_t>() < 500'000;
  const std::uint64_t limit = long_run() ? kMaxTraceRequests : small ? 10 * kRequests : kRequests;
  const Trace trace = read_trace(trace_folder() + GetParam() + ".kvt.gz", limit);
  KeyMaker keys(trace, options.block_size, true);
  std::int64_t largest = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    largest = std::max(largest, keys.num_blocks(i));
  }
  for (const std::int64_t capacity : {largest, 3 * largest, 40 * largest}) {
    options.capacity = capacity;
    const ReplayResult result = replay(trace, options);
    EXPECT_TRUE(result.invariants.ok()) << result.invariants.error().message;
    EXPECT_EQ(result.counts.requests, trace.size());
    EXPECT_EQ(result.counts.admitted, trace.size()) << "all of them fit when they are alone";
    EXPECT_FALSE(result.digest.has_value());
    EXPECT_LE(result.counts.evictions, result.counts.allocated_blocks);
    EXPECT_LE(result.counts.peak_used_blocks, static_cast<std::uint64_t>(capacity));
    EXPECT_LE(result.counts.final_cached_keys, static_cast<std::uint64_t>(capacity));
  }
}

std::vector<std::string> traces() {
  std::vector<std::string> names{"mooncake-conversation", "agentic-a", "agent-tokens-a", "azure-conversation-2023"};
#ifndef KVPOOL_SANITIZED_BUILD  // millions of entries in the smallest row
  names.emplace_back("agentic-b");
#endif
  if (long_run()) {
    names.emplace_back("agentic-c");
  }
  return names;
}

const auto kTraceName = [](const testing::TestParamInfo<std::string>& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
};

INSTANTIATE_TEST_SUITE_P(Golden, TraceRows, testing::ValuesIn(traces()), kTraceName);
INSTANTIATE_TEST_SUITE_P(Golden, TraceThreads,
                         testing::Values("mooncake-conversation", "agentic-a", "agentic-b", "agentic-c",
                                         "agent-tokens-a", "azure-conversation-2023"),
                         kTraceName);

// request,hit_blocks,evictions,blocks_held
void expect_details(const std::string& trace_name, const std::string& detail, const ReplayOptions& options) {
  InputFile file(trace_folder() + "golden/" + detail);
  LineReader lines(file);
  std::vector<std::string> expected;
  std::string_view line;
  ASSERT_TRUE(lines.next(line));
  while (lines.next(line)) {
    expected.emplace_back(line);
  }
  const Trace trace = read_trace(trace_folder() + trace_name + ".kvt.gz", expected.size());
  std::size_t compared = 0;
  const ReplayResult result = replay(trace, options, [&](std::size_t index, const RequestOutcome& outcome) {
    const std::string actual = std::to_string(index) + "," + std::to_string(outcome.hit_blocks) + "," +
                               std::to_string(outcome.evictions) + "," + std::to_string(outcome.blocks);
    ASSERT_EQ(expected[index], actual);
    ++compared;
  });
  EXPECT_EQ(compared, expected.size());
  EXPECT_TRUE(result.invariants.ok());
}

TEST(ReplayDetails, TokenTraceRequestByRequest) {
  ReplayOptions options;
  options.block_size = 16;
  options.capacity = 5000;
  options.window = 1;
  expect_details("agent-tokens-a", "agent-tokens-a.detail-b16-c5000-w1.csv.gz", options);
}

TEST(ReplayDetails, IdTraceRequestByRequest) {
  ReplayOptions options;
  options.block_size = 512;
  options.capacity = 2000;
  options.window = 8;
  expect_details("mooncake-conversation", "mooncake-conversation.detail-b512-c2000-w8.csv.gz", options);
}

class OpsLog : public testing::TestWithParam<std::string> {};

TEST_P(OpsLog, ResultAndQueueEqualAfterEveryOperation) {
  InputFile file(trace_folder() + "golden/" + GetParam() + ".txt.gz");
  LineReader lines(file);
  std::string_view first;
  ASSERT_TRUE(lines.next(first));
  const OpsReplayResult result = replay_ops_log(lines, first);
  EXPECT_EQ(result.mismatches, 0U) << result.message;
  EXPECT_EQ(result.operations * 3 + 3, lines.number());
}

INSTANTIATE_TEST_SUITE_P(Golden, OpsLog, testing::Values("ops-block1", "ops-small", "ops-medium"),
                         [](const auto& tested) { return tested.param.substr(4); });

}  // namespace
}  // namespace kvpool::tools
