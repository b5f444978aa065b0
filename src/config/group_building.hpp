// Groups out of layers.
#pragma once

#include <span>
#include <vector>

#include "kvpool/config/kv_cache_groups.hpp"

namespace kvpool::config {

// One group whose layers keep their own specs. Precondition: not empty, one uniform type.
[[nodiscard]] KVCacheGroup uniform_group(std::vector<NamedLayer> layers);

// One group with one spec for all its layers.
[[nodiscard]] KVCacheGroup common_group(std::span<const NamedLayer> layers, const LayerSpec& spec);

// Groups of about equal size for layers whose pages have one size: layers with equal specs go together, and
// are dealt out in turns, so that every pipeline stage finds its share in every group.
[[nodiscard]] std::vector<KVCacheGroup> deal_out_groups(std::span<const NamedLayer> layers);

}  // namespace kvpool::config
