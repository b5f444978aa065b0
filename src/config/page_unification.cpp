#include "config/page_unification.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "config/saturating.hpp"
#include "config/spec_access.hpp"

namespace kvpool::config {
namespace {

std::int64_t largest_page(std::span<const NamedLayer> layers) {
  std::int64_t largest = 0;
  for (const NamedLayer& layer : layers) largest = std::max(largest, layer_page_size_bytes(layer.spec));
  return largest;
}

// `factor` times the tokens. Alignment may round a short block up more than a long one; padding evens it out.
LayerSpec lengthened(const LayerSpec& spec, std::int64_t factor, std::int64_t page) {
  LayerSpec longer = with_page_size_padded(with_block_size(spec, mul(layer_block_size(spec), factor)), std::nullopt);
  return layer_page_size_bytes(longer) == page ? longer : with_page_size_padded(longer, page);
}

bool may_be_padded(const LayerSpec& spec) {
  if (std::holds_alternative<MambaSpec>(spec)) return true;
  if (std::holds_alternative<MlaAttentionSpec>(spec) || std::holds_alternative<SlidingWindowMlaSpec>(spec))
    return false;
  return attention_shape(spec)->blocks_by_stride;
}

}  // namespace

bool has_one_page_size(std::span<const NamedLayer> layers) {
  const std::int64_t page = largest_page(layers);
  return std::all_of(layers.begin(), layers.end(),
                     [page](const NamedLayer& layer) { return layer_page_size_bytes(layer.spec) == page; });
}

Result<std::vector<NamedLayer>> unify_page_sizes(std::span<const NamedLayer> layers) {
  const std::int64_t page = largest_page(layers);
  std::vector<NamedLayer> unified;
  unified.reserve(layers.size());
  for (const NamedLayer& layer : layers) {
    const std::int64_t own = layer_page_size_bytes(layer.spec);
    const bool is_state = std::holds_alternative<MambaSpec>(layer.spec);
    if (own == page) {
      unified.push_back(layer);
    } else if (!is_state && page % own == 0) {
      unified.push_back({layer.name, lengthened(layer.spec, page / own, page)});
    } else if (may_be_padded(layer.spec)) {
      unified.push_back({layer.name, with_page_size_padded(layer.spec, page)});
    } else {
      return {ErrorCode::unsupported, "layer '" + layer.name + "': its page of " + std::to_string(own) +
                                          " bytes neither divides the largest page of " + std::to_string(page) +
                                          " bytes nor can it be padded"};
    }
  }
  return unified;
}

}  // namespace kvpool::config
