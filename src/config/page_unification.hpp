// One page size for all layers, by longer blocks or by padding.
#pragma once

#include <cstdint>
#include <vector>

#include "kvpool/config/kv_cache_groups.hpp"

namespace kvpool::config {

[[nodiscard]] bool has_one_page_size(std::span<const NamedLayer> layers);

// Precondition: not empty. Errors: unsupported, naming the first layer that cannot be made to fit.
[[nodiscard]] Result<std::vector<NamedLayer>> unify_page_sizes(std::span<const NamedLayer> layers);

}  // namespace kvpool::config
