#include "tools/launch/driver/job.hpp"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "kvpool/config/kv_cache_groups.hpp"
#include "kvpool/config/memory_plan.hpp"
#include "tools/launch/model/head_slice.hpp"
#include "tools/launch/rank/kv_storage.hpp"
#include "tools/launch/step/byte_codec.hpp"
#include "tools/trace/input_error.hpp"
#include "tools/trace/trace.hpp"

namespace kvpool::launch {
namespace {

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

/// The device kernels have no cache of float32.
Status choose_cache_type(const LaunchOptions& options, ModelConfig& model) {
  if (!options.wants_device() || model.kv_dtype != DType::float32) return {};
  if (options.model.empty()) {
    model.kv_dtype = DType::bfloat16;
    return {};
  }
  return {ErrorCode::invalid_config,
          options.model + ": the CUDA backend keeps no K and V of float32; torch_dtype must be bfloat16"};
}

Bytes encode(const Result<Job>& job) {
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(job.ok() ? 1 : 0));
  if (!job.ok()) {
    out.put(static_cast<std::uint32_t>(job.error().code));
    out.put_text(job.error().message);
    return out.take();
  }
  const ModelConfig& model = job->model;
  for (const std::int64_t number : {job->max_length, model.num_layers, model.hidden_size, model.num_query_heads,
                                    model.num_kv_heads, model.head_size, static_cast<std::int64_t>(model.kv_dtype)}) {
    out.put(number);
  }
  out.put(model.seed);
  out.put(static_cast<std::uint32_t>(model.sliding_windows.size()));
  for (const std::int64_t window : model.sliding_windows) out.put(window);
  return out.take();
}

Error decode_error(ByteReader& in) {
  const auto code = in.get<std::uint32_t>("code");
  Error error{ErrorCode::internal, in.get_text("message"), -1};
  if (code > static_cast<std::uint32_t>(ErrorCode::internal)) in.fail("code", fmt::format("{} is unknown", code));
  if (in.ok()) error.code = static_cast<ErrorCode>(code);
  return error;
}

Job decode_job(ByteReader& in) {
  Job job;
  job.max_length = in.get<std::int64_t>("longest request");
  job.model.num_layers = in.get<std::int64_t>("layers");
  job.model.hidden_size = in.get<std::int64_t>("hidden size");
  job.model.num_query_heads = in.get<std::int64_t>("query heads");
  job.model.num_kv_heads = in.get<std::int64_t>("KV heads");
  job.model.head_size = in.get<std::int64_t>("head size");
  job.model.kv_dtype =
      in.get<std::int64_t>("type") == static_cast<std::int64_t>(DType::float32) ? DType::float32 : DType::bfloat16;
  job.model.seed = in.get<std::uint64_t>("seed");
  job.model.sliding_windows.resize(in.count(sizeof(std::int64_t), "windows"));
  for (std::int64_t& window : job.model.sliding_windows) window = in.get<std::int64_t>("window");
  return job;
}

Result<Job> decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const bool is_job = in.get<std::uint8_t>("kind") == 1;
  Result<Job> result = is_job ? Result<Job>(decode_job(in)) : Result<Job>(decode_error(in));
  if (in.ok() && in.remaining() != 0) in.fail("end", fmt::format("{} bytes too many", in.remaining()));
  if (in.ok() && is_job) {
    if (const Status status = validate(result->model); !status.ok()) in.fail("model", status.error().message);
  }
  if (in.ok()) return result;
  return {ErrorCode::bad_input, "job description of rank 0: " + in.problem(), 0};
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
  if (Status status = choose_cache_type(options, job.model); !status.ok()) return status.error();
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
    bytes = encode(*job);
  }
  if (Status status = communicator.broadcast(bytes, 0, options.timeout()); !status.ok()) return status.error();
  if (job) return *std::move(job);
  return decode(bytes);
}

}  // namespace kvpool::launch
