#include "config/group_building.hpp"

#include <algorithm>
#include <utility>

#include "config/saturating.hpp"
#include "config/spec_rules.hpp"

namespace kvpool::config {
namespace {

struct Bucket {
  LayerSpec spec;
  std::vector<std::string> names;
};

std::vector<Bucket> buckets_of_equal_specs(std::span<const NamedLayer> layers) {
  std::vector<Bucket> buckets;
  for (const NamedLayer& layer : layers) {
    const auto same = [&layer](const Bucket& bucket) { return bucket.spec == layer.spec; };
    auto found = std::find_if(buckets.begin(), buckets.end(), same);
    if (found == buckets.end()) found = buckets.insert(buckets.end(), {layer.spec, {}});
    found->names.push_back(layer.name);
  }
  return buckets;
}

std::vector<Bucket> merged(std::vector<Bucket> buckets) {
  std::vector<Bucket> result;
  for (Bucket& bucket : buckets) {
    bool taken = false;
    for (Bucket& earlier : result) {
      const auto joined = merge(earlier.spec, bucket.spec);
      if (!joined) continue;
      earlier.spec = *joined;
      earlier.names.insert(earlier.names.end(), bucket.names.begin(), bucket.names.end());
      taken = true;
      break;
    }
    if (!taken) result.push_back(std::move(bucket));
  }
  return result;
}

// Layers per group. Padding a few short groups costs less than many small groups do.
std::int64_t group_size(const std::vector<Bucket>& buckets) {
  const auto shorter = [](const Bucket& a, const Bucket& b) { return a.names.size() < b.names.size(); };
  const auto [least, most] = std::minmax_element(buckets.begin(), buckets.end(), shorter);
  const std::size_t smallest = least->names.size();
  const std::size_t largest = most->names.size();
  return static_cast<std::int64_t>(2 * largest < 3 * smallest ? largest : smallest);
}

}  // namespace

KVCacheGroup uniform_group(std::vector<NamedLayer> layers) {
  KVCacheGroup group;
  for (const NamedLayer& layer : layers) group.layer_names.push_back(layer.name);
  group.spec = UniformTypeSpec{std::move(layers)};
  return group;
}

KVCacheGroup common_group(std::span<const NamedLayer> layers, const LayerSpec& spec) {
  KVCacheGroup group;
  for (const NamedLayer& layer : layers) group.layer_names.push_back(layer.name);
  group.spec = to_group_spec(spec);
  return group;
}

std::vector<KVCacheGroup> deal_out_groups(std::span<const NamedLayer> layers) {
  const std::vector<Bucket> buckets = merged(buckets_of_equal_specs(layers));
  std::vector<KVCacheGroup> groups;
  if (buckets.empty()) return groups;
  const std::int64_t size = group_size(buckets);
  for (const Bucket& bucket : buckets) {
    const auto parts = static_cast<std::size_t>(cdiv(static_cast<std::int64_t>(bucket.names.size()), size));
    for (std::size_t part = 0; part < parts; ++part) {
      KVCacheGroup group;
      group.spec = to_group_spec(bucket.spec);
      for (std::size_t i = part; i < bucket.names.size(); i += parts) group.layer_names.push_back(bucket.names[i]);
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace kvpool::config
