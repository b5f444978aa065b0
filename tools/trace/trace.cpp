#include "tools/trace/trace.hpp"

#include <algorithm>

#include "tools/trace/input_error.hpp"

namespace kvpool::tools {

std::span<const IdRun> Trace::runs(std::size_t index) const noexcept {
  const std::uint64_t begin = index == 0 ? 0 : run_ends_[index - 1];
  return {runs_.data() + begin, static_cast<std::size_t>(run_ends_[index] - begin)};
}

void Trace::add(const TraceRequest& request, std::span<const IdRun> runs) {
  requests_.push_back(request);
  runs_.insert(runs_.end(), runs.begin(), runs.end());
  run_ends_.push_back(runs_.size());
}

void Trace::add(const TraceRequest& request, std::size_t base, std::int64_t keep, std::span<const TokenId> suffix,
                std::span<const TokenId> output) {
  // A prompt that takes from its base only what the base itself took from elsewhere refers to that directly. So each
  // step of prompt() copies at least one token, however long the chain in the file is.
  while (keep > 0 && keep <= prompts_[base].keep) {
    base = prompts_[base].base;
  }
  TokenPrompt prompt{base, keep, tokens_.size(), 0, 0};
  tokens_.insert(tokens_.end(), suffix.begin(), suffix.end());
  prompt.output = tokens_.size();
  tokens_.insert(tokens_.end(), output.begin(), output.end());
  prompt.output_end = tokens_.size();
  requests_.push_back(request);
  prompts_.push_back(prompt);
}

void Trace::prompt(std::size_t index, std::vector<TokenId>& out) const {
  auto needed = static_cast<std::size_t>(requests_[index].input_tokens);
  out.resize(needed);
  while (needed > 0) {
    const TokenPrompt& prompt = prompts_[index];
    const auto keep = static_cast<std::size_t>(prompt.keep);
    if (needed > keep) {
      std::copy_n(tokens_.begin() + static_cast<std::ptrdiff_t>(prompt.begin), needed - keep,
                  out.begin() + static_cast<std::ptrdiff_t>(keep));
    }
    needed = std::min(needed, keep);
    index = prompt.base;
  }
}

std::span<const TokenId> Trace::output(std::size_t index) const noexcept {
  const TokenPrompt& prompt = prompts_[index];
  return {tokens_.data() + prompt.output, static_cast<std::size_t>(prompt.output_end - prompt.output)};
}

TraceFormat trace_format(const LineReader& lines, std::string_view first_line) {
  if (first_line.starts_with("# kvtrace-ops")) {
    return TraceFormat::ops_log;
  }
  if (first_line.starts_with("#")) {
    return TraceFormat::kvt;
  }
  if (first_line.starts_with("{")) {
    return TraceFormat::mooncake;
  }
  throw InputError(lines.file_name(), 1, "",
                   "no known trace: it starts neither with a '#' header nor with a JSON object",
                   first_line.empty() ? std::string_view("nothing") : first_line);
}

Trace read_trace(InputFile& file, std::uint64_t limit) {
  LineReader lines(file);
  std::string_view first;
  if (!lines.next(first)) {
    throw InputError(file.name(), 0, "", "is empty");
  }
  switch (trace_format(lines, first)) {
    case TraceFormat::kvt: return read_kvt(lines, first, limit);
    case TraceFormat::mooncake: return read_mooncake(lines, first, limit);
    case TraceFormat::ops_log: break;
  }
  throw InputError(file.name(), 1, "", "is an operation log, not a request trace");
}

Trace read_trace(const std::string& path, std::uint64_t limit) {
  InputFile file(path);
  return read_trace(file, limit);
}

}  // namespace kvpool::tools
