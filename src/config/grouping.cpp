#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_set>
#include <utility>

#include "config/group_building.hpp"
#include "config/overloaded.hpp"
#include "config/page_unification.hpp"
#include "config/saturating.hpp"
#include "config/spec_access.hpp"
#include "config/spec_rules.hpp"
#include "config/tuple_packing.hpp"
#include "kvpool/config/kv_cache_groups.hpp"

namespace kvpool {
namespace {

using config::Overloaded;
using Groups = std::vector<KVCacheGroup>;

std::vector<LayerSpec> specs_of(std::span<const NamedLayer> layers) {
  std::vector<LayerSpec> specs;
  specs.reserve(layers.size());
  for (const NamedLayer& layer : layers) specs.push_back(layer.spec);
  return specs;
}

Status check_layers(std::span<const NamedLayer> layers) {
  std::unordered_set<std::string> names;
  for (const NamedLayer& layer : layers) {
    if (!names.insert(layer.name).second) {
      return {ErrorCode::invalid_config, "layer '" + layer.name + "' appears twice"};
    }
    if (const Status status = validate_spec(to_group_spec(layer.spec)); !status) {
      return {status.error().code, "layer '" + layer.name + "': " + status.error().message};
    }
  }
  return {};
}

// The block size of all full-attention layers, empty when there are several.
std::optional<std::int64_t> full_block_size(std::span<const NamedLayer> layers) {
  std::optional<std::int64_t> size;
  for (const NamedLayer& layer : layers) {
    if (!config::is_full_family(layer.spec)) continue;
    const std::int64_t own = config::layer_block_size(layer.spec);
    if (size && *size != own) return std::nullopt;
    size = own;
  }
  return size;
}

template <class Predicate>
bool any_layer(std::span<const NamedLayer> layers, Predicate predicate) {
  return std::any_of(layers.begin(), layers.end(), [&](const NamedLayer& layer) { return predicate(layer.spec); });
}

std::vector<NamedLayer> promoted(std::span<const NamedLayer> layers) {
  std::vector<NamedLayer> result(layers.begin(), layers.end());
  if (!any_layer(layers, config::is_full_family)) return result;
  const auto block_size = full_block_size(layers);
  for (NamedLayer& layer : result) layer.spec = config::promote_to_full(layer.spec, block_size);
  return result;
}

Result<std::vector<NamedLayer>> promoted_to_one_type(std::span<const NamedLayer> layers) {
  std::vector<NamedLayer> result = promoted(layers);
  const std::vector<LayerSpec> specs = specs_of(result);
  const auto joined = config::merge_all(specs);
  if (!joined) return joined.error();
  if (joined->has_value() || config::all_uniform_type(specs)) return result;
  return {ErrorCode::invalid_config,
          "the hybrid manager is disabled, but the layers cannot all be allocated like full attention"};
}

// Latent attention cannot be padded; beside plain windows it can still share one block table when every
// layer keeps the whole sequence.
Result<Groups> one_full_group(std::span<const NamedLayer> layers, const Error& otherwise) {
  const bool only_latent_and_windows = std::all_of(layers.begin(), layers.end(), [](const NamedLayer& layer) {
    return std::holds_alternative<MlaAttentionSpec>(layer.spec) ||
           std::holds_alternative<SlidingWindowSpec>(layer.spec);
  });
  if (!only_latent_and_windows || !any_layer(layers, config::is_full_family)) return otherwise;
  std::vector<NamedLayer> all_full = promoted(layers);
  if (!config::all_uniform_type(specs_of(all_full))) return otherwise;
  return Groups{config::uniform_group(std::move(all_full))};
}

// Hidden states have one vector a token: their block is as long as fits into the common page and as all
// groups' blocks have as a common divisor.
Result<KVCacheGroup> hidden_group(const NamedLayer& layer, std::int64_t common_divisor, std::int64_t page) {
  const std::int64_t bytes_per_token = config::raw_page_size_bytes(config::with_block_size(layer.spec, 1));
  const std::int64_t most = std::max<std::int64_t>(page / bytes_per_token, 1);
  std::int64_t block_size = std::min(most, common_divisor);
  while (common_divisor % block_size != 0) --block_size;
  LayerSpec spec = config::with_page_size_padded(config::with_block_size(layer.spec, block_size), page);
  if (const Status status = validate_spec(to_group_spec(spec)); !status) {
    return {ErrorCode::unsupported, "layer '" + layer.name + "': one token of " + std::to_string(bytes_per_token) +
                                        " bytes is larger than the common page of " + std::to_string(page) + " bytes"};
  }
  return config::common_group(std::span(&layer, 1), spec);
}

Result<Groups> groups_of_one_page_size(std::span<const NamedLayer> layers) {
  std::vector<NamedLayer> hidden;
  std::vector<NamedLayer> others;
  for (const NamedLayer& layer : layers) {
    (std::holds_alternative<HiddenStateSpec>(layer.spec) ? hidden : others).push_back(layer);
  }
  if (others.empty()) {
    return {ErrorCode::invalid_config,
            "hidden-state layers with different block sizes need a layer with KV beside them"};
  }
  const auto unified = config::unify_page_sizes(others);
  if (!unified) {
    if (!hidden.empty()) return unified.error();
    return one_full_group(others, unified.error());
  }
  Groups groups = config::deal_out_groups(*unified);
  std::int64_t divisor = 0;
  for (const KVCacheGroup& group : groups) divisor = std::gcd(divisor, block_size(group.spec));
  const std::int64_t page = page_size_bytes(groups.front().spec);
  for (const NamedLayer& layer : hidden) {
    auto group = hidden_group(layer, divisor, page);
    if (!group) return group.error();
    groups.push_back(std::move(*group));
  }
  return groups;
}

Result<Groups> group_layers(std::span<const NamedLayer> layers, bool use_eagle) {
  const std::vector<LayerSpec> specs = specs_of(layers);
  const auto joined = config::merge_all(specs);
  if (!joined) return joined.error();
  if (joined->has_value()) return Groups{config::common_group(layers, **joined)};
  if (config::all_uniform_type(specs)) return Groups{config::uniform_group({layers.begin(), layers.end()})};
  if (config::needs_tuple_packing(layers)) return config::pack_tuples(layers, use_eagle);
  return groups_of_one_page_size(layers);
}

void flag_draft_groups(Groups& groups, const std::vector<std::string>& draft_layers) {
  for (KVCacheGroup& group : groups) {
    for (const std::string& name : group.layer_names) {
      if (std::find(draft_layers.begin(), draft_layers.end(), name) != draft_layers.end()) group.is_eagle_group = true;
    }
  }
}

}  // namespace

Result<Groups> get_kv_cache_groups(std::span<const NamedLayer> layers, const GroupingOptions& options) {
  if (const Status status = check_layers(layers); !status) return status.error();
  if (layers.empty()) return Groups{};
  std::vector<NamedLayer> own(layers.begin(), layers.end());
  if (options.disable_hybrid_kv_cache_manager) {
    auto single = promoted_to_one_type(layers);
    if (!single) return single.error();
    own = std::move(*single);
  }
  auto groups = group_layers(own, options.use_eagle);
  if (groups) flag_draft_groups(*groups, options.draft_layers);
  return groups;
}

Groups project_groups(std::span<const KVCacheGroup> groups, std::span<const NamedLayer> layers) {
  std::unordered_set<std::string> held;
  for (const NamedLayer& layer : layers) held.insert(layer.name);

  Groups result;
  for (const KVCacheGroup& group : groups) {
    KVCacheGroup part;
    for (const std::string& name : group.layer_names) {
      if (held.contains(name)) part.layer_names.push_back(name);
    }
    part.is_eagle_group = group.is_eagle_group && !part.layer_names.empty();
    part.spec = std::visit(Overloaded{
                               [&](const UniformTypeSpec& uniform) {
                                 UniformTypeSpec own;
                                 for (const NamedLayer& layer : uniform.layers) {
                                   if (held.contains(layer.name)) own.layers.push_back(layer);
                                 }
                                 return own.layers.empty() ? to_group_spec(uniform.layers.front().spec)
                                                           : KVCacheSpec{std::move(own)};
                               },
                               [](const auto& spec) { return KVCacheSpec{spec}; },
                           },
                           group.spec);
    result.push_back(std::move(part));
  }
  return result;
}

}  // namespace kvpool
