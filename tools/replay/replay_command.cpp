// kvpool replay: a real request trace against the pool, counted and timed.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "tools/cli/exit_status.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/json_output.hpp"
#include "tools/replay/ops_replay.hpp"
#include "tools/replay/replayer.hpp"
#include "tools/trace/input_error.hpp"
#include "tools/trace/trace.hpp"

namespace kvpool::tools {
namespace {

constexpr const char* kExample = R"(Example:
  kvpool replay mooncake-conversation.kvt.gz --capacity 10000 --window 32
replays an hour of a chat service with 32 requests alive at a time and prints hits, evictions, throughput and latency.
TRACE may be a .kvt trace, Mooncake's JSONL, or an operation log, which is compared line by line.)";

struct CommandOptions {
  std::string trace;
  ReplayOptions replay;
  std::int64_t block_size = 0;  ///< 0: the trace's own, or 16
  std::int64_t first = 0;       ///< 0: all
  bool json = false;
};

int finish_log(const CommandOptions& options, const OpsReplayResult& result) {
  if (!result.message.empty()) {
    fmt::print(stderr, "{}\n", result.message);
  }
  if (options.json) {
    Json object{{"trace", options.trace}, {"operations", result.operations}, {"mismatches", result.mismatches}};
    if (result.interrupted) {
      object["interrupted"] = true;
    }
    print_json(object);
  } else {
    fmt::print("{}: {} operations compared, {} mismatches{}\n", options.trace, result.operations, result.mismatches,
               result.interrupted ? ", interrupted" : "");
  }
  if (result.mismatches != 0) {
    return kExitCheckFailed;
  }
  return result.interrupted ? kExitInterrupted : kExitOk;
}

int finish_replay(const CommandOptions& options, const ReplayOptions& parameters, const ReplayResult& result) {
  if (options.json) {
    print_json(to_json(options.trace, parameters, result));
  } else {
    fmt::print("{}", to_table(options.trace, parameters, result));
  }
  if (!result.invariants) {
    return fail("replay", result.invariants.error().message, kExitCheckFailed);
  }
  return result.interrupted ? kExitInterrupted : kExitOk;
}

int run_trace(const CommandOptions& options, const Trace& trace) {
  ReplayOptions parameters = options.replay;
  constexpr std::int64_t kTokenTraceBlock = 16;
  if (options.block_size > 0) {
    parameters.block_size = options.block_size;
  } else {
    parameters.block_size = trace.kind == TraceKind::ids ? trace.block_size : kTokenTraceBlock;
  }
  if (options.first > 0) {
    parameters.first_requests = options.first;
  }
  try {
    return finish_replay(options, parameters, replay(trace, parameters));
  } catch (const std::invalid_argument& error) {
    return fail("replay", fmt::format("{}: --block-size: {}", options.trace, error.what()), kExitBadInput);
  }
}

int run(const CommandOptions& options) {
  const InterruptGuard guard;
  try {
    InputFile file(options.trace);
    LineReader lines(file);
    std::string_view first_line;
    if (!lines.next(first_line)) {
      throw InputError(options.trace, 0, "", "is empty");
    }
    const std::uint64_t limit = options.first > 0 ? static_cast<std::uint64_t>(options.first) : kMaxTraceRequests;
    switch (trace_format(lines, first_line)) {
      case TraceFormat::ops_log: return finish_log(options, replay_ops_log(lines, first_line));
      case TraceFormat::kvt: return run_trace(options, read_kvt(lines, first_line, limit));
      case TraceFormat::mooncake: return run_trace(options, read_mooncake(lines, first_line, limit));
    }
    return kExitBadInput;
  } catch (const InputError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return kExitBadInput;
  }
}

}  // namespace

void add_replay_command(CLI::App& app, int& exit_status);

void add_replay_command(CLI::App& app, int& exit_status) {
  auto* command = app.add_subcommand("replay", "Replay a request trace, or compare an operation log");
  auto options = std::make_shared<CommandOptions>();
  ReplayOptions& replay = options->replay;
  command->add_option("TRACE", options->trace, "Trace file, plain or gzip")->required();
  command
      ->add_option("--block-size", options->block_size,
                   "Tokens per block (default: what an id of the trace stands for, else 16)")
      ->check(CLI::Range(std::int64_t{1}, kMaxTraceBlockSize));
  command->add_option("--capacity", replay.capacity, "Usable blocks")
      ->check(CLI::Range(std::int64_t{1}, kMaxCapacity))
      ->capture_default_str();
  command->add_option("--window", replay.window, "Most requests alive at a time, per thread")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
  const std::map<std::string, DuplicatePolicy> policies{{"keep", DuplicatePolicy::keep},
                                                        {"skip", DuplicatePolicy::skip}};
  command->add_option("--duplicates", replay.duplicates, "A second block with a known key: keep or skip")
      ->transform(CLI::CheckedTransformer(policies));
  const std::map<std::string, bool> outputs{{"hashed", true}, {"none", false}};
  command->add_option("--output", replay.hash_output, "Generated tokens: hashed, or none as if there were none")
      ->transform(CLI::CheckedTransformer(outputs));
  const std::map<std::string, FreeOrder> orders{{"split", FreeOrder::split}, {"append", FreeOrder::append}};
  command->add_option("--order", replay.order, "Where released blocks go: split or append")
      ->transform(CLI::CheckedTransformer(orders));
  command->add_option("--first", options->first, "Only the first N requests")
      ->check(CLI::Range(std::int64_t{1}, static_cast<std::int64_t>(kMaxTraceRequests)));
  command->add_option("--threads", replay.threads, "Scheduler threads on one pool; the digest needs 1")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(kExample);
  command->callback([options, &exit_status] { exit_status = run(*options); });
}

}  // namespace kvpool::tools
