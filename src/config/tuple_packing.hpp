// Groups for models that mix compressed latent layers with latent windows of several page sizes: no page
// size is common, so layers are packed into tuples with one layer of each size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvpool/config/kv_cache_groups.hpp"

namespace kvpool::config {

// Latent windows beside latent full attention, nothing else, and more than one page size.
[[nodiscard]] bool needs_tuple_packing(std::span<const NamedLayer> layers);

// The first group holds all full-attention layers. Errors: invalid_config when their block sizes differ.
[[nodiscard]] Result<std::vector<KVCacheGroup>> pack_tuples(std::span<const NamedLayer> layers, bool use_eagle);

// Value in [least, max(counts)] that rounds the counts up with the smallest sum of padding; the largest of
// equals. Precondition: counts not empty, all positive.
[[nodiscard]] std::int64_t best_tuple_count(std::span<const std::int64_t> counts, std::int64_t least);

}  // namespace kvpool::config
