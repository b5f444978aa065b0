#include <string>
#include <vector>

#include "require.hpp"
#include "targets.hpp"
#include "tools/trace/input_error.hpp"
#include "tools/trace/input_file.hpp"
#include "tools/trace/line_reader.hpp"
#include "tools/trace/ops_log_reader.hpp"
#include "tools/trace/trace.hpp"

namespace kvpool::fuzz {
namespace {

using namespace kvpool::tools;

constexpr std::uint64_t kMaxRequests = 2'000;

void check_ids(const Trace& trace, std::size_t index) {
  for (const IdRun& run : trace.runs(index)) {
    require(run.count > 0, "a run has ids");
    require(run.first >= 0 && run.first <= kMaxTraceId - run.count, "ids stay in range");
  }
}

void check_tokens(const Trace& trace, std::size_t index, std::vector<TokenId>& prompt) {
  trace.prompt(index, prompt);
  require(static_cast<std::int64_t>(prompt.size()) == trace[index].input_tokens, "a prompt has its length");
  require(static_cast<std::int64_t>(trace.output(index).size()) == trace[index].output_tokens,
          "an output has its length");
}

void check(const Trace& trace) {
  std::vector<TokenId> prompt;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const TraceRequest& request = trace[i];
    require(request.time_ms >= 0 && request.time_ms <= kMaxTime, "times stay in range");
    require(request.input_tokens >= 0 && request.input_tokens <= kMaxRequestTokens, "prompts stay in range");
    require(request.output_tokens >= 0 && request.output_tokens <= kMaxRequestTokens, "outputs stay in range");
    if (trace.kind == TraceKind::ids) {
      check_ids(trace, i);
    } else {
      check_tokens(trace, i, prompt);
    }
  }
}

void read_log(LineReader& lines, std::string_view first) {
  OpsLogReader reader(lines, first);
  require(reader.capacity() > 0 && reader.block_size() > 0, "a log has a pool");
  OpsLogEntry entry;
  for (std::uint64_t line = 0; reader.next(entry); line = entry.line) {
    require(entry.line > line, "a log is read forwards");
  }
}

}  // namespace

void fuzz_trace(std::span<const std::uint8_t> bytes) {
  InputFile file("trace", {bytes.begin(), bytes.end()});
  LineReader lines(file);
  try {
    std::string_view view;
    if (!lines.next(view)) {
      return;
    }
    const std::string first(view);
    switch (trace_format(lines, first)) {
      case TraceFormat::kvt: check(read_kvt(lines, first, kMaxRequests)); break;
      case TraceFormat::mooncake: check(read_mooncake(lines, first, kMaxRequests)); break;
      case TraceFormat::ops_log: read_log(lines, first); break;
    }
  } catch (const InputError& error) {
    require(!std::string_view(error.what()).empty(), "a refusal says what is wrong");
  }
}

}  // namespace kvpool::fuzz
