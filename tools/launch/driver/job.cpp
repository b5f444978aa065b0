#include "tools/launch/driver/job.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "kvpool/config/kv_cache_groups.hpp"
#include "kvpool/config/memory_plan.hpp"
#include "tools/launch/model/head_slice.hpp"
#include "tools/launch/rank/kv_storage.hpp"
#include "tools/trace/input_error.hpp"
#include "tools/trace/trace.hpp"

namespace kvpool::launch {
namespace {

using Json = nlohmann::json;

Result<Workload> read_workload(const LaunchOptions& options) {
  try {
    const std::uint64_t limit = options.first.value_or(std::numeric_limits<std::uint64_t>::max());
    tools::Trace trace = tools::read_trace(options.trace, limit);
    if (trace.size() == 0) return {ErrorCode::bad_input, options.trace + ": no requests"};
    return Workload::create(std::move(trace), options.trace, options.tokens_per_id);
  } catch (const tools::InputError& error) {
    return {ErrorCode::bad_input, error.what()};
  }
}

/// An explicit pool must hold the placeholder block and one more.
Status check_memory(const LaunchOptions& options, const ModelConfig& model, int world_size) {
  if (!options.memory) return {};
  const auto slice = head_slice_of(model.num_query_heads, model.num_kv_heads, 0, world_size);
  if (!slice.ok()) return slice.status();
  const auto groups = get_kv_cache_groups(layer_specs(model, *slice, options.block_size));
  if (!groups.ok()) return groups.status();
  const std::int64_t block = bytes_per_block(*groups);
  if (*options.memory >= 2 * block) return {};
  return {ErrorCode::invalid_config,
          fmt::format("--memory {} bytes: a block of {} tokens takes {} bytes per rank, and a "
                      "pool needs at least 2 ({} bytes)",
                      *options.memory, options.block_size, block, 2 * block)};
}

std::string to_text(const Result<Job>& job) {
  Json text;
  if (job.ok()) {
    const ModelConfig& model = job->model;
    text["max_length"] = job->max_length;
    text["windows"] = model.sliding_windows;
    text["model"] = {{"num_hidden_layers", model.num_layers},
                     {"hidden_size", model.hidden_size},
                     {"num_attention_heads", model.num_query_heads},
                     {"num_key_value_heads", model.num_kv_heads},
                     {"head_dim", model.head_size},
                     {"torch_dtype", model.kv_dtype == DType::float32 ? "float32" : "bfloat16"},
                     {"seed", model.seed}};
  } else {
    text["code"] = static_cast<int>(job.error().code);
    text["message"] = job.error().message;
  }
  return text.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Job> from_text(const std::string& text) {
  const Error garbled{ErrorCode::bad_input, "rank 0 sent a job description that cannot be read", 0};
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return garbled;
  try {
    if (json.contains("message")) {
      const int code = json.at("code").get<int>();
      if (code < 0 || code > static_cast<int>(ErrorCode::internal)) return garbled;
      return {static_cast<ErrorCode>(code), json.at("message").get<std::string>()};
    }
    Job job;
    job.max_length = json.at("max_length").get<std::int64_t>();
    auto model = parse_model_config(json.at("model").dump(), "job description");
    if (!model.ok()) return model.error();
    job.model = *std::move(model);
    job.model.sliding_windows = json.at("windows").get<std::vector<std::int64_t>>();
    if (Status status = validate(job.model); !status.ok()) return status.error();
    return job;
  } catch (const Json::exception&) {
    return garbled;
  }
}

}  // namespace

Result<Job> read_job(const LaunchOptions& options, int world_size) {
  if (Status status = validate(options); !status.ok()) return status.error();
  Job job;
  if (!options.model.empty()) {
    auto model = load_model_config(options.model);
    if (!model.ok()) return model.error();
    job.model = *std::move(model);
  }
  const auto slice = head_slice_of(job.model.num_query_heads, job.model.num_kv_heads, 0, world_size);
  if (!slice.ok()) return slice.error();
  if (Status status = check_memory(options, job.model, world_size); !status.ok()) return status.error();
  auto workload = read_workload(options);
  if (!workload.ok()) return workload.error();
  job.max_length = workload->max_length();
  job.workload = std::make_shared<Workload>(*std::move(workload));
  return job;
}

Result<Job> share_job(const LaunchOptions& options, Communicator& communicator) {
  std::optional<Result<Job>> job;
  Bytes bytes;
  if (communicator.rank() == 0) {
    job.emplace(read_job(options, communicator.world_size()));
    const std::string text = to_text(*job);
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    bytes.assign(data, data + text.size());
  }
  if (Status status = communicator.broadcast(bytes, 0, options.timeout()); !status.ok()) return status.error();
  if (job) return *std::move(job);
  return from_text(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace kvpool::launch
