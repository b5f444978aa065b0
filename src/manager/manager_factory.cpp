#include "manager/manager_factory.hpp"

#include <fmt/format.h>

#include "config/overloaded.hpp"
#include "manager/chunked_local_attention_manager.hpp"
#include "manager/cross_attention_manager.hpp"
#include "manager/full_attention_manager.hpp"
#include "manager/mamba_align_manager.hpp"
#include "manager/mamba_manager.hpp"
#include "manager/rswa_manager.hpp"
#include "manager/sink_full_attention_manager.hpp"
#include "manager/sliding_window_manager.hpp"

namespace kvpool {
namespace {

using config::Overloaded;

/// Layers of one group have the same rules; a uniform-type group follows its first layer.
KVCacheSpec representative(const KVCacheSpec& spec) {
  const auto* uniform = std::get_if<UniformTypeSpec>(&spec);
  if (uniform == nullptr) return spec;
  return to_group_spec(uniform->layers.front().spec);
}

Status out_of_range(const char* field, std::int64_t value) {
  return Status(ErrorCode::invalid_config, fmt::format("{}: {} is out of range", field, value));
}

Status check_sizes(const KVCacheSpec& spec) {
  return std::visit(
      Overloaded{
          [](const SlidingWindowSpec& s) {
            if (s.extra_retained_tokens < 0) {
              return out_of_range("extra_retained_tokens", s.extra_retained_tokens);
            }
            return s.sliding_window >= 1 ? Status() : out_of_range("sliding_window", s.sliding_window);
          },
          [](const SlidingWindowMlaSpec& s) {
            if (s.extra_retained_tokens < 0) {
              return out_of_range("extra_retained_tokens", s.extra_retained_tokens);
            }
            return s.sliding_window >= 1 ? Status() : out_of_range("sliding_window", s.sliding_window);
          },
          [](const ChunkedLocalAttentionSpec& s) {
            return s.attention_chunk_size >= 1 ? Status()
                                               : out_of_range("attention_chunk_size", s.attention_chunk_size);
          },
          [](const MambaSpec& s) {
            return s.num_speculative_blocks >= 0 ? Status()
                                                 : out_of_range("num_speculative_blocks", s.num_speculative_blocks);
          },
          [](const SinkFullAttentionSpec& s) {
            return s.sink_len >= 0 && s.sink_len % s.block_size == 0 ? Status() : out_of_range("sink_len", s.sink_len);
          },
          [](const RswaSpec& s) { return s.rswa_window >= 0 ? Status() : out_of_range("rswa_window", s.rswa_window); },
          [](const EncoderOnlyAttentionSpec&) {
            return Status(ErrorCode::unsupported, "encoder-only attention keeps no KV cache");
          },
          [](const auto&) { return Status(); },
      },
      spec);
}

}  // namespace

Result<SpecTraits> spec_traits(const KVCacheSpec& spec) {
  if (const auto* uniform = std::get_if<UniformTypeSpec>(&spec); uniform != nullptr && uniform->layers.empty()) {
    return Error{ErrorCode::invalid_config, "groups: a uniform-type group without layers"};
  }
  const KVCacheSpec layer = representative(spec);
  if (block_size(layer) < 1) return out_of_range("block_size", block_size(layer)).error();
  if (Status status = check_sizes(layer); !status) return status.error();
  return std::visit(
      Overloaded{
          [](const SlidingWindowSpec& s) {
            return SpecTraits{.is_windowed = true, .is_sparse = true, .window = s.sliding_window};
          },
          [](const SlidingWindowMlaSpec& s) {
            return SpecTraits{.is_windowed = true, .is_sparse = true, .window = s.sliding_window};
          },
          [](const ChunkedLocalAttentionSpec&) { return SpecTraits{.is_windowed = true, .is_chunked_local = true}; },
          [](const MambaSpec&) { return SpecTraits{.is_state = true, .is_sparse = true}; },
          [](const CrossAttentionSpec&) { return SpecTraits{.is_encoder = true}; },
          [](const SinkFullAttentionSpec& s) {
            return SpecTraits{.is_full_attention = true, .permanent_blocks = s.sink_len / s.block_size};
          },
          [](const FullAttentionSpec& s) { return SpecTraits{.is_full_attention = true, .window = s.sliding_window}; },
          [](const auto&) { return SpecTraits{.is_full_attention = true}; },
      },
      layer);
}

std::unique_ptr<SingleTypeManager> make_manager(const KVCacheSpec& spec, const GroupContext& context) {
  using Manager = std::unique_ptr<SingleTypeManager>;
  return std::visit(
      Overloaded{
          [&](const SlidingWindowSpec& s) -> Manager {
            return std::make_unique<SlidingWindowManager>(context, s.sliding_window, s.extra_retained_tokens);
          },
          [&](const SlidingWindowMlaSpec& s) -> Manager {
            return std::make_unique<SlidingWindowManager>(context, s.sliding_window, s.extra_retained_tokens);
          },
          [&](const ChunkedLocalAttentionSpec& s) -> Manager {
            return std::make_unique<ChunkedLocalAttentionManager>(context, s.attention_chunk_size);
          },
          [&](const MambaSpec& s) -> Manager {
            if (s.cache_mode == MambaCacheMode::align) {
              return std::make_unique<MambaAlignManager>(context, s.num_speculative_blocks);
            }
            return std::make_unique<MambaManager>(context, s.num_speculative_blocks);
          },
          [&](const CrossAttentionSpec&) -> Manager { return std::make_unique<CrossAttentionManager>(context); },
          [&](const SinkFullAttentionSpec& s) -> Manager {
            return std::make_unique<SinkFullAttentionManager>(context, s.sink_len / s.block_size);
          },
          [&](const RswaSpec& s) -> Manager { return std::make_unique<RswaManager>(context, s.rswa_window); },
          [&](const auto&) -> Manager { return std::make_unique<FullAttentionManager>(context); },
      },
      representative(spec));
}

}  // namespace kvpool
