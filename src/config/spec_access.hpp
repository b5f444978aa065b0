// Fields that many spec types share, reached without knowing the type.
#pragma once

#include <cstdint>
#include <optional>

#include "kvpool/config/kv_cache_spec.hpp"

namespace kvpool::config {

[[nodiscard]] std::int64_t layer_block_size(const LayerSpec& spec);

// Bytes of one block before and after padding.
[[nodiscard]] std::int64_t raw_page_size_bytes(const LayerSpec& spec);
[[nodiscard]] std::int64_t layer_page_size_bytes(const LayerSpec& spec);

[[nodiscard]] std::optional<std::int64_t> page_size_padded(const LayerSpec& spec);
[[nodiscard]] LayerSpec with_block_size(LayerSpec spec, std::int64_t block_size);
[[nodiscard]] LayerSpec with_page_size_padded(LayerSpec spec, std::optional<std::int64_t> bytes);

// Null for state layers.
[[nodiscard]] const AttentionShape* attention_shape(const LayerSpec& spec);

// The first layer of a mixed group, the spec itself otherwise. Precondition: not empty.
[[nodiscard]] LayerSpec representative(const KVCacheSpec& spec);

[[nodiscard]] std::int64_t layer_max_blocks(const LayerSpec& spec, const RequestLimits& limits);
[[nodiscard]] std::int64_t layer_permanent_blocks(const LayerSpec& spec);

}  // namespace kvpool::config
