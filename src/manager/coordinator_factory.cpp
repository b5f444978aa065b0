#include "manager/coordinator_factory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "config/overloaded.hpp"
#include "config/spec_access.hpp"
#include "manager/hybrid_coordinator.hpp"
#include "manager/manager_factory.hpp"
#include "manager/no_prefix_cache_coordinator.hpp"
#include "manager/unitary_coordinator.hpp"

namespace kvpool {
namespace {

Status bad(std::string message) { return Status(ErrorCode::invalid_config, std::move(message)); }

/// Tokens per block as the managers count: attention blocks are spread over all context-parallel ranks,
/// states are whole on each.
std::int64_t scaled_block_size(const KVCacheSpec& spec, const SpecTraits& traits, std::int64_t dcp_world_size) {
  return traits.is_state ? block_size(spec) : block_size(spec) * dcp_world_size;
}

bool uses_eagle(const KVCacheConfig& config, const KVCacheManagerOptions& options, std::size_t group) {
  if (config.groups[group].is_eagle_group) return true;
  const auto flagged = [](const KVCacheGroup& g) { return g.is_eagle_group; };
  return options.use_eagle && std::none_of(config.groups.begin(), config.groups.end(), flagged);
}

bool any_eagle(const KVCacheConfig& config, const KVCacheManagerOptions& options) {
  for (std::size_t g = 0; g < config.groups.size(); ++g) {
    if (uses_eagle(config, options, g)) return true;
  }
  return false;
}

Status check_options(const KVCacheConfig& config, const KVCacheManagerOptions& options) {
  if (config.num_blocks < 1 || config.num_blocks > std::numeric_limits<std::int32_t>::max()) {
    return bad(fmt::format("num_blocks: {} is out of range", config.num_blocks));
  }
  const std::pair<const char*, std::int64_t> sizes[] = {{"max_model_len", options.max_model_len},
                                                        {"scheduler_block_size", options.scheduler_block_size},
                                                        {"hash_block_size", options.hash_block_size},
                                                        {"dcp_world_size", options.dcp_world_size}};
  for (const auto& [name, value] : sizes) {
    if (value < 1) return bad(fmt::format("{}: {} is not positive", name, value));
  }
  if (options.max_in_flight_tokens && *options.max_in_flight_tokens < 0) {
    return bad(fmt::format("max_in_flight_tokens: {} is negative", *options.max_in_flight_tokens));
  }
  if (options.num_prefill_lookahead < 0) {
    return bad(fmt::format("num_prefill_lookahead: {} is negative", options.num_prefill_lookahead));
  }
  if (!(options.watermark >= 0.0 && options.watermark < 1.0)) {
    return bad(fmt::format("watermark: {} is not in [0, 1)", options.watermark));
  }
  if (options.scheduler_block_size % options.hash_block_size != 0) {
    return bad(fmt::format("hash_block_size: {} does not divide scheduler_block_size {}", options.hash_block_size,
                           options.scheduler_block_size));
  }
  if (options.enable_caching && config.groups.empty()) return bad("groups: caching without a group");
  return {};
}

Status check_retention(const KVCacheConfig& config, const KVCacheManagerOptions& options, bool any_sparse) {
  if (!config.prefix_cache_retention_interval) return {};
  const std::int64_t interval = *config.prefix_cache_retention_interval;
  if (!any_sparse && interval != 0) {
    return bad(fmt::format("retention_interval: {} without a window or state group", interval));
  }
  if (interval < 0 || interval % options.scheduler_block_size != 0) {
    return bad(fmt::format("retention_interval: {} is no multiple of scheduler_block_size {}", interval,
                           options.scheduler_block_size));
  }
  return {};
}

Status check_group(const KVCacheConfig& config, const KVCacheManagerOptions& options, std::size_t index,
                   const SpecTraits& traits) {
  const std::int64_t size = scaled_block_size(config.groups[index].spec, traits, options.dcp_world_size);
  if (options.scheduler_block_size % size != 0) {
    return bad(fmt::format("scheduler_block_size: {} is no multiple of the {} tokens per block of group {}",
                           options.scheduler_block_size, size, index));
  }
  if (options.dcp_world_size > 1 && traits.is_windowed) {
    return bad(fmt::format("dcp_world_size: {} with window or chunk group {}", options.dcp_world_size, index));
  }
  if (!options.enable_caching) return {};
  if (traits.is_encoder) return bad(fmt::format("enable_caching: true with cross-attention group {}", index));
  if (size % options.hash_block_size != 0) {
    return bad(fmt::format("hash_block_size: {} does not divide the {} tokens per block of group {}",
                           options.hash_block_size, size, index));
  }
  if (config.groups.size() == 1 && size != options.hash_block_size) {
    return bad(fmt::format("hash_block_size: {} differs from the {} tokens per block of the only group",
                           options.hash_block_size, size));
  }
  if (traits.is_chunked_local && uses_eagle(config, options, index)) {
    return bad(fmt::format("use_eagle: true for chunked-local group {}", index));
  }
  return {};
}

GroupContext make_context(const KVCacheConfig& config, const KVCacheManagerOptions& options, BlockPool& pool,
                          std::size_t index, const SpecTraits& traits) {
  const KVCacheSpec& spec = config.groups[index].spec;
  GroupContext context;
  context.pool = &pool;
  context.metrics = options.residency_metrics.get();
  context.id = GroupId{static_cast<std::uint32_t>(index)};
  context.block_size = scaled_block_size(spec, traits, options.dcp_world_size);
  context.hash_block_size = options.hash_block_size;
  context.scheduler_block_size = options.scheduler_block_size;
  context.retention_interval = config.prefix_cache_retention_interval;
  context.enable_caching = options.enable_caching;
  if (traits.is_windowed) {
    RequestLimits limits;
    limits.max_model_len = options.max_model_len;
    limits.max_in_flight_tokens = options.max_in_flight_tokens.value_or(options.max_model_len);
    context.admission_cap = max_blocks_per_request(spec, limits);
  }
  context.zero_new_blocks = options.collect_blocks_to_zero && !traits.is_state && needs_zeroing(config);
  context.zero_copy_targets = options.collect_blocks_to_zero && !traits.is_state;
  return context;
}

void collect_dtypes(const KVCacheSpec& spec, std::set<DType>& dtypes) {
  const auto collect = [&dtypes](const LayerSpec& layer) {
    if (const AttentionShape* shape = config::attention_shape(layer)) dtypes.insert(shape->dtype);
  };
  std::visit(config::Overloaded{
                 [&](const UniformTypeSpec& uniform) {
                   for (const UniformTypeSpec::Layer& layer : uniform.layers) collect(layer.spec);
                 },
                 [&](const auto& layer) { collect(LayerSpec{layer}); },
             },
             spec);
}

}  // namespace

bool needs_zeroing(const KVCacheConfig& config) {
  std::set<DType> dtypes;
  for (const KVCacheGroup& group : config.groups) {
    const Result<SpecTraits> traits = spec_traits(group.spec);
    if (traits && traits->is_state) return true;
    collect_dtypes(group.spec, dtypes);
  }
  return dtypes.size() > 1;
}

Status validate_manager_config(const KVCacheConfig& config, const KVCacheManagerOptions& options) {
  if (Status status = check_options(config, options); !status) return status;
  bool any_sparse = false;
  std::int64_t permanent = 0;
  for (std::size_t g = 0; g < config.groups.size(); ++g) {
    const Result<SpecTraits> traits = spec_traits(config.groups[g].spec);
    if (!traits) return traits.status();
    if (Status status = check_group(config, options, g, *traits); !status) return status;
    any_sparse = any_sparse || traits->is_sparse;
    permanent += traits->permanent_blocks;
  }
  if (permanent > config.num_blocks - 1) {
    return bad(fmt::format("num_blocks: {} are too few for {} permanent blocks", config.num_blocks, permanent));
  }
  if (options.enable_caching && any_eagle(config, options) &&
      options.scheduler_block_size < options.num_prefill_lookahead) {
    return bad(fmt::format("num_prefill_lookahead: {} is larger than scheduler_block_size {}",
                           options.num_prefill_lookahead, options.scheduler_block_size));
  }
  return check_retention(config, options, any_sparse);
}

std::unique_ptr<CacheCoordinator> make_coordinator(const KVCacheConfig& config, const KVCacheManagerOptions& options,
                                                   BlockPool& pool) {
  CacheCoordinator::Managers managers;
  std::vector<bool> eagle_groups;
  for (std::size_t g = 0; g < config.groups.size(); ++g) {
    const SpecTraits traits = *spec_traits(config.groups[g].spec);
    managers.push_back(make_manager(config.groups[g].spec, make_context(config, options, pool, g, traits)));
    eagle_groups.push_back(uses_eagle(config, options, g));
  }
  const CoordinatorOptions sizes{options.scheduler_block_size, options.hash_block_size, options.num_prefill_lookahead,
                                 options.dcp_world_size};
  if (!options.enable_caching) {
    return std::make_unique<NoPrefixCacheCoordinator>(pool, std::move(managers), sizes);
  }
  if (config.groups.size() == 1) {
    return std::make_unique<UnitaryCoordinator>(pool, std::move(managers), sizes, eagle_groups[0]);
  }
  return std::make_unique<HybridCoordinator>(pool, std::move(managers), sizes, config.groups, eagle_groups);
}

}  // namespace kvpool
