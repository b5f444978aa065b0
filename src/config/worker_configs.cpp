// Planning all ranks together.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "config/overloaded.hpp"
#include "config/saturating.hpp"
#include "config/spec_access.hpp"
#include "config/spec_rules.hpp"
#include "kvpool/config/memory_plan.hpp"

namespace kvpool {
namespace {

using config::mul;
using config::Overloaded;

// One rank while it is planned.
struct Worker {
  std::vector<KVCacheGroup> groups;
  std::int64_t available_bytes = 0;
  std::int64_t block_bytes = 0;

  [[nodiscard]] bool holds_layers() const noexcept { return block_bytes > 0; }
  [[nodiscard]] std::int64_t num_blocks() const noexcept {
    return std::max<std::int64_t>(available_bytes, 0) / block_bytes;
  }
};

std::string text(std::int64_t number) { return std::to_string(number); }

Status check_options(const PlanOptions& options) {
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value >= least) return Status{};
    return Status{ErrorCode::invalid_config,
                  std::string(name) + " " + text(value) + " must be at least " + text(least)};
  };
  const RequestLimits& limits = options.limits;
  for (const Status& status : {at_least("max_model_len", limits.max_model_len, 1),
                               at_least("max_in_flight_tokens", limits.max_in_flight_tokens, 0),
                               at_least("max_num_encoder_input_tokens", limits.max_num_encoder_input_tokens, 0),
                               at_least("dcp_world_size", limits.dcp_world_size, 1),
                               at_least("min_concurrent_requests", options.min_concurrent_requests, 1),
                               at_least("num_mtp_tokens", options.num_mtp_tokens, 0),
                               at_least("num_gpu_blocks_override", options.num_gpu_blocks_override.value_or(1), 1)}) {
    if (!status) return status;
  }
  return {};
}

LayerSpec with_retained_tokens(LayerSpec spec, std::int64_t tokens) {
  std::visit(Overloaded{
                 [tokens](SlidingWindowSpec& window) { window.extra_retained_tokens = tokens; },
                 [tokens](SlidingWindowMlaSpec& window) { window.extra_retained_tokens = tokens; },
                 [](auto&) {},
             },
             spec);
  return spec;
}

// The layers of all ranks, in the order in which ranks bring them.
Result<std::vector<NamedLayer>> merge_layers(std::span<const WorkerMemory> workers, const PlanOptions& options) {
  const std::int64_t retained = std::max<std::int64_t>(options.num_mtp_tokens - 1, 0);
  std::vector<NamedLayer> merged;
  std::map<std::string, std::pair<std::size_t, std::size_t>> first_seen;  // name -> position, rank
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    for (const NamedLayer& layer : workers[rank].layers) {
      NamedLayer tagged{layer.name, with_retained_tokens(layer.spec, retained)};
      const auto [found, is_new] = first_seen.try_emplace(layer.name, merged.size(), rank);
      if (is_new) {
        merged.push_back(std::move(tagged));
      } else if (found->second.second == rank) {
        return {ErrorCode::invalid_config, "layer '" + layer.name + "' appears twice", static_cast<int>(rank)};
      } else if (merged[found->second.first].spec != tagged.spec) {
        return {ErrorCode::layout_mismatch,
                "layer '" + layer.name + "' has another spec on rank " + text(static_cast<std::int64_t>(rank)) +
                    " than on rank " + text(static_cast<std::int64_t>(found->second.second)),
                static_cast<int>(rank)};
      }
    }
  }
  return merged;
}

// Local layers on a rank of a context-parallel group would need tokens that live elsewhere.
Status check_context_parallelism(std::span<const KVCacheGroup> groups, std::int64_t dcp_world_size) {
  if (dcp_world_size == 1) return {};
  for (const KVCacheGroup& group : groups) {
    if (!config::is_local(config::representative(group.spec))) continue;
    return {ErrorCode::unsupported, "dcp_world_size " + text(dcp_world_size) + ": " +
                                        std::string(event_kind(group.spec)) + " layers need dcp_world_size 1"};
  }
  return {};
}

Status check_memory(const Worker& worker, const PlanOptions& options, int rank) {
  const std::int64_t reserved = reserved_blocks(worker.groups);
  if (worker.available_bytes <= worker.block_bytes) {
    return {ErrorCode::out_of_memory,
            "no memory for the KV cache: " + text(worker.available_bytes) +
                " bytes are available, and the null block alone takes " + text(worker.block_bytes),
            rank};
  }
  const std::int64_t per_request = blocks_per_request(worker.groups, options.limits);
  const std::int64_t needed = mul(per_request, options.min_concurrent_requests);
  const std::int64_t usable = worker.num_blocks() - reserved;
  if (needed <= usable) return {};

  const std::int64_t longest =
      estimate_max_model_len(worker.groups, options.limits, worker.num_blocks(), options.min_concurrent_requests);
  return {ErrorCode::out_of_memory,
          text(options.min_concurrent_requests) + " request(s) of max_model_len " + text(options.limits.max_model_len) +
              " need " + text(needed) + " blocks (" + text(mul(needed, worker.block_bytes)) + " bytes), but " +
              text(worker.available_bytes) + " bytes hold " + text(std::max<std::int64_t>(usable, 0)) +
              " usable blocks of " + text(worker.block_bytes) + " bytes besides " + text(reserved) +
              " reserved; the largest max_model_len that fits is " + text(longest),
          rank};
}

// Lowers limits.max_model_len to what every rank can hold.
Status auto_fit(std::span<const Worker> workers, PlanOptions& options) {
  std::int64_t longest = options.limits.max_model_len;
  int tightest = -1;
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    if (!workers[rank].holds_layers()) continue;
    const std::int64_t fitting = estimate_max_model_len(workers[rank].groups, options.limits,
                                                        workers[rank].num_blocks(), options.min_concurrent_requests);
    if (fitting < longest) {
      longest = fitting;
      tightest = static_cast<int>(rank);
    }
  }
  if (longest < 1) {
    return {ErrorCode::out_of_memory,
            "no max_model_len fits: " + text(workers[static_cast<std::size_t>(tightest)].available_bytes) +
                " bytes hold not even one token besides the reserved blocks",
            tightest};
  }
  options.limits.max_model_len = longest;
  return {};
}

// The pool is as large as the smallest rank's; larger ones give the rest back.
void shrink_to(KVCacheConfig& config, std::int64_t num_blocks) {
  for (KVCacheTensor& tensor : config.tensors) tensor.size_bytes = tensor.size_bytes / config.num_blocks * num_blocks;
  config.num_blocks = num_blocks;
}

std::vector<Worker> project_workers(std::span<const WorkerMemory> workers, std::span<const KVCacheGroup> groups,
                                    const PlanOptions& options) {
  std::vector<Worker> projected;
  for (const WorkerMemory& worker : workers) {
    Worker result;
    result.groups = project_groups(groups, worker.layers);
    result.block_bytes = bytes_per_block(result.groups);
    result.available_bytes = options.num_gpu_blocks_override ? mul(*options.num_gpu_blocks_override, result.block_bytes)
                                                             : worker.available_bytes;
    projected.push_back(std::move(result));
  }
  return projected;
}

}  // namespace

Result<MemoryPlan> get_kv_cache_configs(std::span<const WorkerMemory> workers, const PlanOptions& given) {
  if (workers.empty()) return {ErrorCode::invalid_config, "no rank to plan for"};
  if (const Status status = check_options(given); !status) return status.error();
  const auto layers = merge_layers(workers, given);
  if (!layers) return layers.error();
  auto groups = get_kv_cache_groups(*layers, given.grouping);
  if (!groups) return groups.error();
  if (const Status status = check_context_parallelism(*groups, given.limits.dcp_world_size); !status) {
    return status.error();
  }

  PlanOptions options = given;
  const std::vector<Worker> projected = project_workers(workers, *groups, options);
  if (options.auto_fit_max_model_len) {
    if (const Status status = auto_fit(projected, options); !status) return status.error();
  }
  MemoryPlan plan;
  plan.max_model_len = options.limits.max_model_len;
  std::int64_t num_blocks = groups->empty() ? 1 : config::kSaturated;
  for (std::size_t rank = 0; rank < projected.size(); ++rank) {
    const Worker& worker = projected[rank];
    if (worker.holds_layers()) {
      if (const Status status = check_memory(worker, options, static_cast<int>(rank)); !status) return status.error();
    }
    auto config = get_kv_cache_config_from_groups(worker.groups, worker.available_bytes, options);
    if (!config) return config.error();
    if (worker.holds_layers()) num_blocks = std::min(num_blocks, config->num_blocks);
    plan.workers.push_back(std::move(*config));
  }
  for (KVCacheConfig& config : plan.workers) shrink_to(config, num_blocks);
  plan.groups = std::move(*groups);
  return plan;
}

Result<KVCacheConfig> generate_scheduler_kv_cache_config(std::span<const KVCacheConfig> workers) {
  if (workers.empty()) return {ErrorCode::invalid_config, "no rank to schedule for"};
  KVCacheConfig result = workers.front();
  for (std::size_t rank = 1; rank < workers.size(); ++rank) {
    const KVCacheConfig& other = workers[rank];
    if (other.num_blocks != result.num_blocks) {
      return {ErrorCode::invalid_config,
              "rank " + text(static_cast<std::int64_t>(rank)) + " has " + text(other.num_blocks) +
                  " blocks, rank 0 has " + text(result.num_blocks),
              static_cast<int>(rank)};
    }
    if (other.groups.size() != result.groups.size()) {
      return {ErrorCode::invalid_config,
              "rank " + text(static_cast<std::int64_t>(rank)) + " has " +
                  text(static_cast<std::int64_t>(other.groups.size())) + " groups, rank 0 has " +
                  text(static_cast<std::int64_t>(result.groups.size())),
              static_cast<int>(rank)};
    }
    for (std::size_t i = 0; i < result.groups.size(); ++i) {
      result.groups[i].is_eagle_group = result.groups[i].is_eagle_group || other.groups[i].is_eagle_group;
    }
  }
  for (KVCacheGroup& group : result.groups) {
    group.spec = to_group_spec(config::representative(group.spec));
  }
  return result;
}

}  // namespace kvpool
