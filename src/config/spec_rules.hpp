// Which layers can share a block table, and what they turn into when they do.
#pragma once

#include <optional>
#include <span>

#include "kvpool/config/kv_cache_spec.hpp"
#include "kvpool/foundation/error.hpp"

namespace kvpool::config {

[[nodiscard]] bool is_full_family(const LayerSpec& spec);
[[nodiscard]] bool is_window_mla(const LayerSpec& spec);
[[nodiscard]] bool is_local(const LayerSpec& spec);  // sliding window or chunked

// One spec that stands for both, or empty. Full attention differs in markers only: a marker that one side
// lacks is taken from the other, two different ones do not merge.
[[nodiscard]] std::optional<LayerSpec> merge(const LayerSpec& a, const LayerSpec& b);

// One spec for all, empty when they cannot be merged. Errors: invalid_config when all are full attention
// and their window or chunk markers contradict each other.
[[nodiscard]] Result<std::optional<LayerSpec>> merge_all(std::span<const LayerSpec> specs);

// Managed by one block table although the pages may differ: same base type, same parameters of the
// table's life cycle (window, chunk, speculative blocks, ...), same block size.
[[nodiscard]] bool same_uniform_type(const LayerSpec& a, const LayerSpec& b);
[[nodiscard]] bool all_uniform_type(std::span<const LayerSpec> specs);

// Local layers allocated like full attention, other layers as they are; the pattern of attention stays as
// a marker. `block_size` empty: kept.
[[nodiscard]] LayerSpec promote_to_full(const LayerSpec& spec, std::optional<std::int64_t> block_size);

}  // namespace kvpool::config
