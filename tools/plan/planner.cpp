#include "tools/plan/planner.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/plan/activations.hpp"
#include "tools/plan/ledger.hpp"
#include "tools/plan/model_layers.hpp"
#include "tools/plan/weights.hpp"

namespace kvpool::tools {
namespace {

constexpr std::int64_t kBatchTokens = 8192;         // scheduled in one step, as engines do by default
constexpr std::int64_t kLengthWithoutLimit = 8192;  // for models that know none
constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
constexpr std::int64_t kMostRanks = std::int64_t{1} << 16;
constexpr std::int64_t kLongestBlock = std::int64_t{1} << 20;

// An option's value within its range.
Status within(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return {};
  return {ErrorCode::invalid_argument, std::string(name) + " " + std::to_string(value) + ": expected " +
                                           std::to_string(least) + " to " + std::to_string(most)};
}

Status check_request(const PlanRequest& request) {
  if (!(request.utilization > 0 && request.utilization <= 1)) {
    return {ErrorCode::invalid_argument,
            "--utilization " + std::to_string(request.utilization) + ": expected more than 0, at most 1"};
  }
  for (const Status& status :
       {within("--gpu-memory", request.gpu_memory, 1, kMostBytes),
        within("--weights", request.weights.value_or(0), 0, kMostBytes),
        within("--peak", request.peak.value_or(0), 0, kMostBytes),
        within("--tp", request.shard.tensor_parallel, 1, kMostRanks),
        within("--pp", request.shard.pipeline_parallel, 1, kMostRanks),
        within("--block-size", request.shard.block_size, 1, kLongestBlock),
        within("--max-model-len", request.max_model_len.value_or(1), 1, kMostTokens),
        within("--max-in-flight-tokens", request.max_in_flight_tokens.value_or(1), 1, kMostTokens)}) {
    if (!status) return status;
  }
  return {};
}

RequestLimits limits_of(const ModelFacts& facts, const PlanRequest& request, const ModelLayers& layers) {
  RequestLimits limits;
  limits.max_model_len = request.max_model_len.value_or(facts.max_position.value_or(kLengthWithoutLimit));
  limits.max_in_flight_tokens = request.max_in_flight_tokens.value_or(kBatchTokens * request.shard.pipeline_parallel);
  limits.max_num_encoder_input_tokens = layers.max_encoder_tokens;
  return limits;
}

void warn_about_length(const ModelFacts& facts, const PlanRequest& request, std::vector<std::string>& warnings) {
  if (!facts.max_position && !request.max_model_len) {
    warnings.push_back("the model states no maximum length; planned for " + std::to_string(kLengthWithoutLimit) +
                       " tokens");
  }
  if (facts.max_position && request.max_model_len.value_or(0) > *facts.max_position) {
    warnings.push_back("--max-model-len " + std::to_string(*request.max_model_len) + " exceeds the model's " +
                       std::to_string(*facts.max_position) + " positions");
  }
}

std::int64_t layer_count(const KVCacheGroup& group) { return static_cast<std::int64_t>(group.layer_names.size()); }

// A mixed group's page is that of all its layers.
double layer_bytes_per_token(const KVCacheGroup& group) {
  const bool mixed = std::holds_alternative<UniformTypeSpec>(group.spec);
  const double layers = mixed ? (layer_count(group) > 0 ? 1.0 : 0.0) : static_cast<double>(layer_count(group));
  return layers * static_cast<double>(page_size_bytes(group.spec)) / static_cast<double>(block_size(group.spec));
}

// States do not grow with the tokens, and cross layers grow with the encoder's input.
bool grows_with_tokens(const KVCacheGroup& group) {
  const std::string_view kind = event_kind(group.spec);
  return kind != "mamba" && kind != "cross_attention";
}

double bytes_per_token(std::span<const KVCacheGroup> groups) {
  double bytes = 0;
  for (const KVCacheGroup& group : groups) bytes += grows_with_tokens(group) ? layer_bytes_per_token(group) : 0;
  return bytes;
}

std::int64_t largest_page(std::span<const KVCacheGroup> groups) {
  std::int64_t largest = 0;
  for (const KVCacheGroup& group : groups) {
    if (const auto* mixed = std::get_if<UniformTypeSpec>(&group.spec)) {
      for (const NamedLayer& layer : mixed->layers)
        largest = std::max(largest, page_size_bytes(to_group_spec(layer.spec)));
    } else {
      largest = std::max(largest, page_size_bytes(group.spec));
    }
  }
  return largest;
}

std::vector<PlannedGroup> describe(std::span<const KVCacheGroup> groups, const RequestLimits& limits) {
  std::vector<PlannedGroup> described;
  for (const KVCacheGroup& group : groups) {
    described.push_back({std::string(spec_name(group.spec)), layer_count(group), block_size(group.spec),
                         page_size_bytes(group.spec), max_blocks_per_request(group.spec, limits)});
  }
  return described;
}

// Blocks on every stage: the library's plan where one fits, its arithmetic where none does.
struct StagePlan {
  std::vector<std::vector<KVCacheGroup>> groups;  // of each stage
  std::vector<std::int64_t> block_bytes;
  std::int64_t num_blocks = 0;
};

StagePlan plan_stages(std::span<const KVCacheGroup> groups, const ModelLayers& layers,
                      std::span<const StageMemory> memory) {
  StagePlan plan;
  plan.num_blocks = -1;
  for (std::size_t stage = 0; stage < layers.stages.size(); ++stage) {
    plan.groups.push_back(project_groups(groups, layers.stages[stage]));
    plan.block_bytes.push_back(bytes_per_block(plan.groups.back()));
    if (plan.block_bytes.back() == 0) continue;
    const std::int64_t blocks = std::max<std::int64_t>(memory[stage].available_bytes(), 0) / plan.block_bytes.back();
    plan.num_blocks = plan.num_blocks < 0 ? blocks : std::min(plan.num_blocks, blocks);
  }
  if (plan.num_blocks < 0) plan.num_blocks = 1;
  return plan;
}

// Bytes that the worst stage lacks for one request of full length.
std::int64_t missing_bytes(const StagePlan& plan, std::span<const StageMemory> memory, std::int64_t needed_blocks) {
  std::int64_t worst = 0;
  for (std::size_t stage = 0; stage < memory.size(); ++stage) {
    std::int64_t needed = 0;
    if (__builtin_mul_overflow(needed_blocks, plan.block_bytes[stage], &needed)) needed = INT64_MAX / 2;
    std::int64_t missing = 0;
    if (__builtin_sub_overflow(needed, memory[stage].available_bytes(), &missing)) missing = INT64_MAX / 2;
    worst = std::max(worst, missing);
  }
  return worst;
}

Result<std::vector<StageMemory>> stage_memory(const ModelFacts& facts, const PlanRequest& request,
                                              const RequestLimits& limits, std::vector<std::string>& warnings) {
  const auto stages = static_cast<std::size_t>(request.shard.pipeline_parallel);
  std::vector<StageMemory> memory(stages);
  for (StageMemory& stage : memory) {
    stage.total_bytes = request.gpu_memory;
    stage.usable_bytes = usable_bytes(request.gpu_memory, request.utilization);
    stage.peak_bytes = request.peak.value_or(0);
    stage.peak_given = request.peak.has_value();
    stage.weight_bytes = request.weights.value_or(0);
    stage.weights_given = request.weights.has_value();
  }
  if (!request.peak) {
    const std::int64_t in_flight = limits.max_in_flight_tokens;
    const auto peak = estimate_activations(facts, request.shard,
                                           std::max<std::int64_t>(1, in_flight / request.shard.pipeline_parallel));
    if (!peak) return peak.error();
    for (std::size_t i = 0; i < stages; ++i) memory[i].peak_bytes = (*peak)[i];
    warnings.emplace_back(
        "activations are estimated from the shapes of the layers; measure them and give --peak to be exact");
  }
  if (request.weights) return memory;
  const auto estimate = estimate_weights(facts, request.shard.tensor_parallel, request.shard.pipeline_parallel);
  if (!estimate) return estimate.error();
  for (std::size_t i = 0; i < stages; ++i) memory[i].weight_bytes = estimate->bytes_per_stage[i];
  if (facts.has_other_encoders) {
    warnings.emplace_back("weights of image or sound encoders are not in the estimate; give --weights to be exact");
  }
  return memory;
}

}  // namespace

Result<PlanReport> plan_model(const ModelFacts& facts, const PlanRequest& request) {
  if (const Status status = check_request(request); !status) return status.error();
  const auto layers = model_layers(facts, request.shard);
  if (!layers) return layers.error();
  PlanReport report;
  report.warnings = layers->warnings;
  warn_about_length(facts, request, report.warnings);
  RequestLimits limits = limits_of(facts, request, *layers);
  const auto memory = stage_memory(facts, request, limits, report.warnings);
  if (!memory) return memory.error();

  std::vector<NamedLayer> all;
  for (const auto& stage : layers->stages) all.insert(all.end(), stage.begin(), stage.end());
  const auto groups = get_kv_cache_groups(all);
  if (!groups) return groups.error();
  const StagePlan plan = plan_stages(*groups, *layers, *memory);

  KVCacheConfig config;
  config.num_blocks = plan.num_blocks;
  config.groups = *groups;
  const CapacityReport capacity = capacity_report(config, limits);
  report.groups = describe(*groups, limits);
  report.page_size_bytes = largest_page(*groups);
  report.num_blocks = plan.num_blocks;
  report.num_tokens = capacity.num_tokens;
  report.max_concurrency = capacity.max_concurrency;
  report.blocks_per_request = capacity.blocks_per_request;
  report.max_model_len = limits.max_model_len;
  for (std::size_t stage = 0; stage < plan.groups.size(); ++stage) {
    report.bytes_per_block = std::max(report.bytes_per_block, plan.block_bytes[stage]);
    report.bytes_per_token = std::max(report.bytes_per_token, bytes_per_token(plan.groups[stage]));
  }
  const std::int64_t reserved = reserved_blocks(*groups);
  report.reserved_blocks = reserved;
  report.fits = groups->empty() || capacity.blocks_per_request <= plan.num_blocks - reserved;
  if (!report.fits) report.missing_bytes = missing_bytes(plan, *memory, capacity.blocks_per_request + reserved);
  limits.max_model_len = std::max(limits.max_model_len, facts.max_position.value_or(0));
  report.max_model_len_fit =
      groups->empty() ? limits.max_model_len : estimate_max_model_len(*groups, limits, plan.num_blocks);
  report.ledger = make_ledger(*memory, plan.block_bytes, plan.num_blocks, groups->empty() ? 0 : reserved);
  for (const StageMemory& stage : *memory) report.ledger_bytes += stage.total_bytes;
  return report;
}

}  // namespace kvpool::tools
