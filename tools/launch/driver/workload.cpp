#include "tools/launch/driver/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace kvpool::launch {
namespace {

/// Lengths travel as 32-bit numbers.
constexpr std::int64_t kMaxLength = std::numeric_limits<std::int32_t>::max() / 2;

std::int64_t scaled(std::int64_t length, std::int64_t tokens_per_id, std::int64_t block_size) {
  return (length * tokens_per_id + block_size - 1) / block_size;
}

}  // namespace

Result<Workload> Workload::create(tools::Trace trace, const std::string& name, std::int64_t tokens_per_id) {
  Workload workload;
  workload.trace_ = std::move(trace);
  workload.tokens_per_id_ = tokens_per_id;
  if (Status status = workload.scale(name); !status.ok()) return status.error();
  return workload;
}

Workload::Workload(Workload&& other) noexcept
    : trace_(std::move(other.trace_)),
      tokens_per_id_(other.tokens_per_id_),
      items_(std::move(other.items_)),
      first_unique_(std::move(other.first_unique_)),
      max_length_(other.max_length_) {}

Status Workload::scale(const std::string& name) {
  const bool ids = trace_.kind == tools::TraceKind::ids;
  std::int64_t unique = 0;
  if (ids) {
    std::int64_t end = 0;
    for (std::size_t i = 0; i < trace_.size(); ++i) {
      for (const tools::IdRun& run : trace_.runs(i)) end = std::max(end, run.first + run.count);
    }
    if (end > std::numeric_limits<std::int64_t>::max() / 2 / tokens_per_id_) {
      return {ErrorCode::bad_input,
              fmt::format("{}: id {} is too large for {} tokens an id", name, end - 1, tokens_per_id_)};
    }
    unique = end * tokens_per_id_;
  }
  for (std::size_t i = 0; i < trace_.size(); ++i) {
    const tools::TraceRequest& request = trace_[i];
    scheduler::WorkItem item;
    item.index = static_cast<std::int64_t>(i);
    item.session = request.session;
    item.prompt_tokens = ids ? scaled(request.input_tokens, tokens_per_id_, trace_.block_size) : request.input_tokens;
    item.output_tokens = ids ? scaled(request.output_tokens, tokens_per_id_, trace_.block_size) : request.output_tokens;
    const std::int64_t length = item.prompt_tokens + item.output_tokens;
    if (item.prompt_tokens < 1 || length > kMaxLength) {
      return {ErrorCode::bad_input,
              fmt::format("{}: request {}: {} prompt and {} output tokens, expected 1 to {} in all", name, i,
                          item.prompt_tokens, item.output_tokens, kMaxLength)};
    }
    max_length_ = std::max(max_length_, length);
    first_unique_.push_back(unique);
    unique += length;
    items_.push_back(item);
  }
  return {};
}

std::vector<TokenId> Workload::prompt(std::int64_t index) const {
  const auto i = static_cast<std::size_t>(index);
  std::vector<TokenId> tokens;
  if (trace_.kind == tools::TraceKind::tokens) {
    trace_.prompt(i, tokens);
    return tokens;
  }
  const auto length = static_cast<std::size_t>(items_[i].prompt_tokens);
  tokens.reserve(length);
  for (const tools::IdRun& run : trace_.runs(i)) {
    for (std::int64_t id = run.first; id < run.first + run.count; ++id) {
      for (std::int64_t j = 0; j < tokens_per_id_ && tokens.size() < length; ++j) {
        tokens.push_back(id * tokens_per_id_ + j);
      }
    }
  }
  while (tokens.size() < length) tokens.push_back(first_unique_[i] + static_cast<TokenId>(tokens.size()));
  return tokens;
}

TokenId Workload::output(std::int64_t index, std::int64_t position) const {
  const auto i = static_cast<std::size_t>(index);
  if (trace_.kind == tools::TraceKind::tokens) return trace_.output(i)[static_cast<std::size_t>(position)];
  return first_unique_[i] + items_[i].prompt_tokens + position;
}

}  // namespace kvpool::launch
