// Names of specs: in KV events, and in messages.
#include <algorithm>

#include "config/overloaded.hpp"
#include "config/spec_rules.hpp"
#include "kvpool/config/kv_cache_spec.hpp"

namespace kvpool {
namespace {

using config::Overloaded;

constexpr std::string_view kUnknown = "unknown";

const auto kNames = Overloaded{
    [](const FullAttentionSpec&) -> std::string_view { return "full_attention"; },
    [](const MlaAttentionSpec&) -> std::string_view { return "mla_attention"; },
    [](const SlidingWindowSpec&) -> std::string_view { return "sliding_window"; },
    [](const SlidingWindowMlaSpec&) -> std::string_view { return "sliding_window_mla"; },
    [](const ChunkedLocalAttentionSpec&) -> std::string_view { return "chunked_local_attention"; },
    [](const MambaSpec&) -> std::string_view { return "mamba"; },
    [](const CrossAttentionSpec&) -> std::string_view { return "cross_attention"; },
    [](const SinkFullAttentionSpec&) -> std::string_view { return "sink_full_attention"; },
    [](const RswaSpec&) -> std::string_view { return "rswa"; },
    [](const EncoderOnlyAttentionSpec&) -> std::string_view { return "encoder_only_attention"; },
    [](const HiddenStateSpec&) -> std::string_view { return "hidden_state"; },
    [](const UniformTypeSpec&) -> std::string_view { return "uniform_type"; },
};

// Consumers of events know no name of their own for the two that differ.
std::string_view layer_kind(const LayerSpec& spec) {
  if (std::holds_alternative<RswaSpec>(spec)) return "full_attention";
  if (std::holds_alternative<HiddenStateSpec>(spec)) return kUnknown;
  return std::visit(kNames, spec);
}

std::string_view uniform_kind(const UniformTypeSpec& uniform) {
  const std::string_view first = layer_kind(uniform.layers.front().spec);
  const auto same = [first](const auto& layer) { return layer_kind(layer.spec) == first; };
  if (std::all_of(uniform.layers.begin(), uniform.layers.end(), same)) return first;
  const auto full = [](const auto& layer) { return config::is_full_family(layer.spec); };
  return std::all_of(uniform.layers.begin(), uniform.layers.end(), full) ? "full_attention" : kUnknown;
}

}  // namespace

std::string_view spec_name(const KVCacheSpec& spec) { return std::visit(kNames, spec); }

std::string_view event_kind(const KVCacheSpec& spec) {
  return std::visit(Overloaded{
                        [](const UniformTypeSpec& uniform) { return uniform_kind(uniform); },
                        [](const auto& layer) { return layer_kind(LayerSpec{layer}); },
                    },
                    spec);
}

}  // namespace kvpool
