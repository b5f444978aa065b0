// Tokens and bytes of one block.
#include <algorithm>

#include "config/overloaded.hpp"
#include "config/saturating.hpp"
#include "config/spec_access.hpp"
#include "kvpool/config/kv_cache_spec.hpp"

namespace kvpool {
namespace {

using config::add;
using config::mul;
using config::Overloaded;

std::int64_t padded(std::int64_t raw, const std::optional<std::int64_t>& page_size_padded) {
  return page_size_padded ? *page_size_padded : raw;
}

std::int64_t aligned(std::int64_t raw, const std::optional<std::int64_t>& alignment) {
  return alignment ? config::round_up(raw, *alignment) : raw;
}

// `storage_tokens`: entries really stored in a block.
std::int64_t attention_bytes(std::int64_t storage_tokens, const AttentionShape& shape,
                             std::int64_t default_head_size_v) {
  const std::int64_t head_size = add(shape.head_size, shape.head_size_v.value_or(default_head_size_v));
  const std::int64_t content = shape.head_content_bytes.value_or(mul(head_size, size_in_bytes(shape.dtype)));
  return mul(mul(storage_tokens, shape.num_head_slots.value_or(shape.num_kv_heads)), content);
}

// The latent vector is K and V at once, whatever head_size_v says.
std::int64_t latent_bytes(std::int64_t storage_tokens, const AttentionShape& shape) {
  AttentionShape latent = shape;
  latent.head_size_v = 0;
  return attention_bytes(storage_tokens, latent, 0);
}

std::int64_t state_bytes(const MambaSpec& spec) {
  std::int64_t bytes = 0;
  for (const MambaStateTensor& state : spec.states) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : state.shape) elements = mul(elements, extent);
    bytes = add(bytes, mul(elements, size_in_bytes(state.dtype)));
  }
  return bytes;
}

const auto kRawPageBytes = Overloaded{
    [](const MlaAttentionSpec& spec) {
      return aligned(latent_bytes(spec.block_size / spec.compress_ratio, spec.shape), spec.alignment);
    },
    [](const SlidingWindowMlaSpec& spec) {
      return aligned(latent_bytes(spec.block_size / spec.compress_ratio, spec.shape), spec.alignment);
    },
    [](const HiddenStateSpec& spec) { return attention_bytes(spec.block_size, spec.shape, 0); },
    [](const MambaSpec& spec) { return state_bytes(spec); },
    [](const auto& spec) { return attention_bytes(spec.block_size, spec.shape, spec.shape.head_size); },
};

}  // namespace

namespace config {

std::int64_t raw_page_size_bytes(const LayerSpec& spec) { return std::visit(kRawPageBytes, spec); }

std::int64_t layer_page_size_bytes(const LayerSpec& spec) {
  return padded(raw_page_size_bytes(spec), page_size_padded(spec));
}

std::int64_t layer_block_size(const LayerSpec& spec) {
  return std::visit([](const auto& layer) { return layer.block_size; }, spec);
}

}  // namespace config

std::int64_t block_size(const KVCacheSpec& spec) {
  return std::visit(
      Overloaded{
          [](const UniformTypeSpec& uniform) { return config::layer_block_size(uniform.layers.front().spec); },
          [](const auto& layer) { return layer.block_size; },
      },
      spec);
}

std::int64_t page_size_bytes(const KVCacheSpec& spec) {
  return std::visit(Overloaded{
                        [](const UniformTypeSpec& uniform) {
                          std::int64_t bytes = 0;
                          for (const auto& layer : uniform.layers) {
                            bytes = add(bytes, config::layer_page_size_bytes(layer.spec));
                          }
                          return bytes;
                        },
                        [](const auto& layer) { return config::layer_page_size_bytes(LayerSpec{layer}); },
                    },
                    spec);
}

}  // namespace kvpool
