// How much one request can hold. Every caller in the library and the tools comes here.
#include <algorithm>

#include "config/overloaded.hpp"
#include "config/saturating.hpp"
#include "config/spec_access.hpp"
#include "kvpool/config/kv_cache_spec.hpp"

namespace kvpool {
namespace {

using config::add;
using config::cdiv;
using config::mul;
using config::Overloaded;

std::int64_t whole_sequence(std::int64_t block_size, const RequestLimits& limits) {
  return cdiv(cdiv(limits.max_model_len, limits.dcp_world_size), block_size);
}

// Before the first token of a step is released, the window of its first token and all tokens in flight
// are held; one block more because the window need not start at a block boundary.
template <class Window>
std::int64_t window_blocks(const Window& spec, const RequestLimits& limits) {
  const std::int64_t held = add(add(spec.sliding_window - 1, spec.extra_retained_tokens), limits.max_in_flight_tokens);
  return add(cdiv(std::min(held, limits.max_model_len), spec.block_size), 1);
}

std::int64_t state_blocks(const MambaSpec& spec, const RequestLimits& limits) {
  if (spec.cache_mode == MambaCacheMode::all) {
    return add(cdiv(limits.max_model_len, spec.block_size), spec.num_speculative_blocks);
  }
  const std::int64_t running = spec.cache_mode == MambaCacheMode::align ? 2 : 1;
  return add(running, spec.num_speculative_blocks);
}

}  // namespace

namespace config {

std::int64_t layer_max_blocks(const LayerSpec& spec, const RequestLimits& limits) {
  return std::visit(
      Overloaded{
          [&](const SlidingWindowSpec& window) { return window_blocks(window, limits); },
          [&](const SlidingWindowMlaSpec& window) { return window_blocks(window, limits); },
          [&](const ChunkedLocalAttentionSpec& chunked) {
            const std::int64_t held = add(chunked.attention_chunk_size, limits.max_in_flight_tokens);
            return cdiv(std::min(held, limits.max_model_len), chunked.block_size);
          },
          [&](const MambaSpec& mamba) { return state_blocks(mamba, limits); },
          [&](const CrossAttentionSpec& cross) { return cdiv(limits.max_num_encoder_input_tokens, cross.block_size); },
          [](const EncoderOnlyAttentionSpec&) { return std::int64_t{0}; },
          [&](const auto& full) { return whole_sequence(full.block_size, limits); },
      },
      spec);
}

std::int64_t layer_permanent_blocks(const LayerSpec& spec) {
  const auto* sink = std::get_if<SinkFullAttentionSpec>(&spec);
  return sink == nullptr ? 0 : sink->sink_len / sink->block_size;
}

}  // namespace config

std::int64_t max_blocks_per_request(const KVCacheSpec& spec, const RequestLimits& limits) {
  return std::visit(Overloaded{
                        [&](const UniformTypeSpec& uniform) {
                          std::int64_t blocks = 0;
                          for (const auto& layer : uniform.layers) {
                            blocks = std::max(blocks, config::layer_max_blocks(layer.spec, limits));
                          }
                          return blocks;
                        },
                        [&](const auto& layer) { return config::layer_max_blocks(LayerSpec{layer}, limits); },
                    },
                    spec);
}

std::int64_t max_memory_usage_bytes(const KVCacheSpec& spec, const RequestLimits& limits) {
  return mul(max_blocks_per_request(spec, limits), page_size_bytes(spec));
}

std::int64_t permanent_blocks(const KVCacheSpec& spec) {
  return std::visit(
      Overloaded{
          [](const UniformTypeSpec& uniform) { return config::layer_permanent_blocks(uniform.layers.front().spec); },
          [](const auto& layer) { return config::layer_permanent_blocks(LayerSpec{layer}); },
      },
      spec);
}

}  // namespace kvpool
