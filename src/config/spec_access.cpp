#include "config/spec_access.hpp"

#include <utility>

#include "config/overloaded.hpp"

namespace kvpool::config {

std::optional<std::int64_t> page_size_padded(const LayerSpec& spec) {
  return std::visit(Overloaded{
                        [](const MambaSpec& mamba) { return mamba.page_size_padded; },
                        [](const auto& attention) { return attention.shape.page_size_padded; },
                    },
                    spec);
}

LayerSpec with_block_size(LayerSpec spec, std::int64_t block_size) {
  std::visit([block_size](auto& layer) { layer.block_size = block_size; }, spec);
  return spec;
}

LayerSpec with_page_size_padded(LayerSpec spec, std::optional<std::int64_t> bytes) {
  std::visit(Overloaded{
                 [&bytes](MambaSpec& mamba) { mamba.page_size_padded = bytes; },
                 [&bytes](auto& attention) { attention.shape.page_size_padded = bytes; },
             },
             spec);
  return spec;
}

const AttentionShape* attention_shape(const LayerSpec& spec) {
  return std::visit(Overloaded{
                        [](const MambaSpec&) -> const AttentionShape* { return nullptr; },
                        [](const auto& attention) -> const AttentionShape* { return &attention.shape; },
                    },
                    spec);
}

LayerSpec representative(const KVCacheSpec& spec) {
  return std::visit(Overloaded{
                        [](const UniformTypeSpec& uniform) { return uniform.layers.front().spec; },
                        [](const auto& layer) { return LayerSpec{layer}; },
                    },
                    spec);
}

}  // namespace kvpool::config

namespace kvpool {

KVCacheSpec to_group_spec(const LayerSpec& spec) {
  return std::visit([](const auto& layer) { return KVCacheSpec{layer}; }, spec);
}

}  // namespace kvpool
