#include "config/tuple_packing.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "config/group_building.hpp"
#include "config/page_unification.hpp"
#include "config/saturating.hpp"
#include "config/spec_access.hpp"
#include "config/spec_rules.hpp"

namespace kvpool::config {
namespace {

// Layers of one block table, sorted by page size; within a size in the order of the model.
class Bucket {
 public:
  void add(const NamedLayer& layer) {
    const std::int64_t page = layer_page_size_bytes(layer.spec);
    const auto same = [page](const auto& entry) { return entry.first == page; };
    auto found = std::find_if(by_page_.begin(), by_page_.end(), same);
    if (found == by_page_.end()) found = by_page_.insert(by_page_.end(), {page, {}});
    found->second.push_back(layer);
  }

  // Layers of the most common page size.
  [[nodiscard]] std::int64_t num_tuples() const {
    std::size_t most = 0;
    for (const auto& [page, layers] : by_page_) most = std::max(most, layers.size());
    return static_cast<std::int64_t>(most);
  }

  // Tuples first, first + step, first + 2 step, ...
  [[nodiscard]] std::vector<NamedLayer> tuples(std::size_t first, std::size_t step) const {
    std::vector<NamedLayer> taken;
    for (const auto& [page, layers] : by_page_) {
      for (std::size_t i = first; i < layers.size(); i += step) taken.push_back(layers[i]);
    }
    return taken;
  }

 private:
  std::vector<std::pair<std::int64_t, std::vector<NamedLayer>>> by_page_;
};

std::vector<Bucket> window_buckets(std::span<const NamedLayer> layers) {
  std::vector<std::pair<LayerSpec, Bucket>> buckets;
  for (const NamedLayer& layer : layers) {
    if (!is_window_mla(layer.spec)) continue;
    const auto same = [&layer](const auto& entry) { return same_uniform_type(entry.first, layer.spec); };
    auto found = std::find_if(buckets.begin(), buckets.end(), same);
    if (found == buckets.end()) found = buckets.insert(buckets.end(), {layer.spec, {}});
    found->second.add(layer);
  }
  std::vector<Bucket> result;
  for (auto& [spec, bucket] : buckets) result.push_back(std::move(bucket));
  return result;
}

bool holds(const KVCacheGroup& group, const std::string& layer) {
  return std::find(group.layer_names.begin(), group.layer_names.end(), layer) != group.layer_names.end();
}

}  // namespace

bool needs_tuple_packing(std::span<const NamedLayer> layers) {
  bool has_window = false;
  bool has_full = false;
  for (const NamedLayer& layer : layers) {
    const bool full = std::holds_alternative<MlaAttentionSpec>(layer.spec);
    const bool window = is_window_mla(layer.spec);
    if (!full && !window) return false;
    has_full = has_full || full;
    has_window = has_window || window;
  }
  return has_full && has_window && !has_one_page_size(layers);
}

std::int64_t best_tuple_count(std::span<const std::int64_t> counts, std::int64_t least) {
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  std::int64_t best = std::max<std::int64_t>(least, 1);
  std::int64_t best_padding = kSaturated;
  for (std::int64_t candidate = best; candidate <= most; ++candidate) {
    std::int64_t padding = 0;
    for (const std::int64_t count : counts) padding += round_up(count, candidate) - count;
    if (padding <= best_padding) {
      best = candidate;
      best_padding = padding;
    }
  }
  return best;
}

Result<std::vector<KVCacheGroup>> pack_tuples(std::span<const NamedLayer> layers, bool use_eagle) {
  Bucket full;
  std::vector<NamedLayer> full_layers;
  for (const NamedLayer& layer : layers) {
    if (is_window_mla(layer.spec)) continue;
    full.add(layer);
    full_layers.push_back(layer);
  }
  for (const NamedLayer& layer : full_layers) {
    if (same_uniform_type(full_layers.front().spec, layer.spec)) continue;
    return {ErrorCode::invalid_config, "layer '" + layer.name + "': block_size " +
                                           std::to_string(layer_block_size(layer.spec)) + " differs from " +
                                           std::to_string(layer_block_size(full_layers.front().spec)) + " of layer '" +
                                           full_layers.front().name + "'"};
  }

  const std::vector<Bucket> windows = window_buckets(layers);
  std::vector<std::int64_t> counts = {full.num_tuples()};
  for (const Bucket& bucket : windows) counts.push_back(bucket.num_tuples());
  const std::int64_t tuples = best_tuple_count(counts, full.num_tuples());

  std::vector<KVCacheGroup> groups = {uniform_group(std::move(full_layers))};
  for (const Bucket& bucket : windows) {
    const auto parts = static_cast<std::size_t>(cdiv(bucket.num_tuples(), tuples));
    for (std::size_t i = 0; i < parts; ++i) groups.push_back(uniform_group(bucket.tuples(i, parts)));
  }
  if (use_eagle) {
    for (KVCacheGroup& group : groups) group.is_eagle_group = holds(group, layers.back().name);
  }
  return groups;
}

}  // namespace kvpool::config
