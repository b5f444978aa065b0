#include "tools/plan/layer_kinds.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "tools/trace/input_error.hpp"

namespace kvpool::tools {
namespace {

using Kinds = std::vector<LayerKind>;

template <class KindOf>
Kinds each_layer(const ModelFacts& facts, KindOf kind_of) {
  Kinds kinds;
  for (std::int64_t i = 0; i < facts.num_layers; ++i) kinds.push_back(kind_of(i));
  return kinds;
}

std::string expected_layers(const ModelFacts& facts) {
  return "expected num_hidden_layers " + std::to_string(facts.num_layers) + " entries";
}

Result<Kinds> kinds_of_letters(const ModelFacts& facts) {
  const std::string& pattern = facts.pattern.hybrid_override_pattern;
  if (static_cast<std::int64_t>(pattern.size()) != facts.num_layers) {
    return bad_field(facts, "hybrid_override_pattern", expected_layers(facts), shortened(pattern));
  }
  Kinds kinds;
  for (const char letter : pattern) {
    switch (letter) {
      case 'M': kinds.push_back(LayerKind::state); break;
      case '*': kinds.push_back(LayerKind::full); break;
      case '-':
      case 'E': kinds.push_back(LayerKind::none); break;
      default: return bad_field(facts, "hybrid_override_pattern", "unknown layer", shortened(std::string(1, letter)));
    }
  }
  return kinds;
}

constexpr std::array<std::pair<std::string_view, LayerKind>, 10> kLayerTypes = {{
    {"full_attention", LayerKind::full},
    {"attention", LayerKind::full},
    {"global_attention", LayerKind::full},
    {"sliding_attention", LayerKind::window},
    {"chunked_attention", LayerKind::chunked},
    {"linear_attention", LayerKind::state},
    {"mamba", LayerKind::state},
    {"mamba2", LayerKind::state},
    {"mlp", LayerKind::none},
    {"moe", LayerKind::none},
}};

Result<Kinds> kinds_of_names(const ModelFacts& facts) {
  const std::vector<std::string>& names = facts.pattern.layer_types;
  if (static_cast<std::int64_t>(names.size()) != facts.num_layers) {
    return bad_field(facts, "layer_types", expected_layers(facts), static_cast<std::int64_t>(names.size()));
  }
  Kinds kinds;
  for (const std::string& name : names) {
    const auto* found = std::find_if(kLayerTypes.begin(), kLayerTypes.end(),
                                     [&name](const auto& known) { return known.first == name; });
    if (found == kLayerTypes.end()) return bad_field(facts, "layer_types", "unknown layer type", shortened(name));
    kinds.push_back(found->second);
  }
  return kinds;
}

Result<Kinds> kinds_of_cross_layers(const ModelFacts& facts) {
  Kinds kinds(static_cast<std::size_t>(facts.num_layers), LayerKind::full);
  for (const std::int64_t layer : facts.pattern.cross_attention_layers) {
    if (layer >= facts.num_layers) {
      return bad_field(facts, "cross_attention_layers", "beyond num_hidden_layers " + std::to_string(facts.num_layers),
                       layer);
    }
    kinds[static_cast<std::size_t>(layer)] = LayerKind::cross;
  }
  return kinds;
}

// Layers without position encoding see everything, the others their chunk.
Result<Kinds> kinds_of_chunks(const ModelFacts& facts) {
  const std::vector<std::int64_t>& flags = facts.pattern.no_rope_layers;
  if (!flags.empty() && static_cast<std::int64_t>(flags.size()) != facts.num_layers) {
    return bad_field(facts, "no_rope_layers", expected_layers(facts), static_cast<std::int64_t>(flags.size()));
  }
  const std::int64_t interval = facts.pattern.no_rope_layer_interval.value_or(4);
  return each_layer(facts, [&](std::int64_t i) {
    const bool global = flags.empty() ? (i + 1) % interval == 0 : flags[static_cast<std::size_t>(i)] == 0;
    return global ? LayerKind::full : LayerKind::chunked;
  });
}

bool uses_window(const ModelFacts& facts) {
  const bool off_by_default = facts.model_type.starts_with("qwen");
  return facts.pattern.sliding_window && facts.pattern.use_sliding_window.value_or(!off_by_default);
}

// Every n-th layer attends globally; where configurations leave n out, the family has a fixed one.
Count window_pattern(const ModelFacts& facts) {
  if (facts.pattern.sliding_window_pattern) return facts.pattern.sliding_window_pattern;
  if (facts.model_type.starts_with("gemma3")) return 6;
  if (facts.model_type == "cohere2") return 4;
  if (facts.model_type == "gemma2" || facts.model_type == "gpt_oss") return 2;
  return std::nullopt;
}

Kinds kinds_of_windows(const ModelFacts& facts) {
  const Count pattern = window_pattern(facts);
  const std::int64_t first = facts.pattern.max_window_layers.value_or(0);
  return each_layer(facts, [&](std::int64_t i) {
    const bool local = pattern ? (i + 1) % *pattern != 0 : i >= first;
    return local ? LayerKind::window : LayerKind::full;
  });
}

bool is_pure_state(const std::string& model_type) {
  return model_type == "mamba" || model_type == "mamba2" || model_type == "falcon_mamba";
}

Result<Kinds> raw_kinds(const ModelFacts& facts) {
  const PatternFacts& pattern = facts.pattern;
  if (!pattern.hybrid_override_pattern.empty()) return kinds_of_letters(facts);
  if (!pattern.layer_types.empty()) return kinds_of_names(facts);
  if (pattern.full_attention_interval) {
    return each_layer(facts, [&](std::int64_t i) {
      return (i + 1) % *pattern.full_attention_interval == 0 ? LayerKind::full : LayerKind::state;
    });
  }
  if (pattern.attn_layer_period) {
    const std::int64_t offset = pattern.attn_layer_offset.value_or(0);
    if (offset >= *pattern.attn_layer_period) {
      return bad_field(facts, "attn_layer_offset",
                       "not below attn_layer_period " + std::to_string(*pattern.attn_layer_period), offset);
    }
    return each_layer(facts, [&](std::int64_t i) {
      return i % *pattern.attn_layer_period == offset ? LayerKind::full : LayerKind::state;
    });
  }
  if (is_pure_state(facts.model_type)) return each_layer(facts, [](std::int64_t) { return LayerKind::state; });
  if (!pattern.cross_attention_layers.empty()) return kinds_of_cross_layers(facts);
  if (facts.encoder.max_source_positions)
    return each_layer(facts, [](std::int64_t) { return LayerKind::full_and_cross; });
  if (pattern.attention_chunk_size) return kinds_of_chunks(facts);
  if (uses_window(facts)) return kinds_of_windows(facts);
  return each_layer(facts, [](std::int64_t) { return LayerKind::full; });
}

bool any(const Kinds& kinds, LayerKind kind) { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); }

Status check_kinds(const ModelFacts& facts, const Kinds& kinds) {
  if (any(kinds, LayerKind::window)) {
    if (!facts.pattern.sliding_window) return bad_field(facts, "sliding_window", "needed by layer_types", "nothing");
    if (!facts.pattern.use_sliding_window.value_or(true)) {
      return bad_field(facts, "use_sliding_window", "contradicts the sliding layers of layer_types", "false");
    }
    if (facts.latent.kv_lora_rank) {
      return bad_field(facts, "kv_lora_rank", "latent attention with a sliding window is not known",
                       *facts.latent.kv_lora_rank);
    }
  }
  if (any(kinds, LayerKind::chunked) && !facts.pattern.attention_chunk_size) {
    return bad_field(facts, "attention_chunk_size", "needed by layer_types", "nothing");
  }
  if (const std::int64_t shared = facts.pattern.num_kv_shared_layers.value_or(0); shared >= facts.num_layers) {
    return bad_field(facts, "num_kv_shared_layers", "not below num_hidden_layers " + std::to_string(facts.num_layers),
                     shared);
  }
  return {};
}

}  // namespace

Error bad_field(const ModelFacts& facts, const std::string& field, const std::string& problem,
                const std::string& value) {
  const auto other = facts.other_names.find(field);
  const std::string& name = other == facts.other_names.end() ? field : other->second;
  return {ErrorCode::bad_input, facts.file + ": " + name + ": " + problem + ", got " + value};
}

Error bad_field(const ModelFacts& facts, const std::string& field, const std::string& problem, std::int64_t value) {
  return bad_field(facts, field, problem, std::to_string(value));
}

Result<Kinds> layer_kinds(const ModelFacts& facts) {
  auto kinds = raw_kinds(facts);
  if (!kinds) return kinds;
  if (const Status status = check_kinds(facts, *kinds); !status) return status.error();
  if (facts.latent.kv_lora_rank) {
    const LayerKind latent = facts.latent.index_head_dim ? LayerKind::latent_and_index : LayerKind::latent;
    std::replace(kinds->begin(), kinds->end(), LayerKind::full, latent);
  }
  const auto shared = static_cast<std::ptrdiff_t>(facts.pattern.num_kv_shared_layers.value_or(0));
  std::fill(kinds->end() - shared, kinds->end(), LayerKind::none);
  return kinds;
}

}  // namespace kvpool::tools
