// The fields that decide about the KV cache, and those that look like one of them by chance.
#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <vector>

#include "tools/plan/config_fields.hpp"
#include "tools/trace/input_error.hpp"

namespace kvpool::tools {
namespace {

constexpr std::array kDecisive = std::to_array<std::string_view>({
    "num_hidden_layers",
    "num_layers",
    "decoder_layers",
    "hidden_size",
    "num_attention_heads",
    "decoder_attention_heads",
    "num_key_value_heads",
    "num_kv_heads",
    "head_dim",
    "attention_head_dim",
    "torch_dtype",
    "max_position_embeddings",
    "max_sequence_length",
    "max_target_positions",
    "max_source_positions",
    "sliding_window",
    "sliding_window_pattern",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "layers_block_type",
    "attention_chunk_size",
    "no_rope_layers",
    "no_rope_layer_interval",
    "cross_attention_layers",
    "num_kv_shared_layers",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_rope_head_dim",
    "qk_nope_head_dim",
    "v_head_dim",
    "hybrid_override_pattern",
    "full_attention_interval",
    "attn_layer_period",
    "attn_layer_offset",
    "mamba_num_heads",
    "mamba_n_heads",
    "mamba_head_dim",
    "mamba_d_head",
    "mamba_d_state",
    "ssm_state_size",
    "state_size",
    "mamba_n_groups",
    "n_groups",
    "mamba_d_conv",
    "conv_kernel",
    "mamba_expand",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "index_head_dim",
    "index_n_heads",
    "text_config",
    "quantization_config",
    "multi_query_group_num",
});

// Near a decisive name, and something else.
constexpr std::array kInnocent = std::to_array<std::string_view>({
    "qk_head_dim",
    "num_heads",
    "num_attn_heads",
    "num_key_value_groups",
    "encoder_layers",
    "encoder_attention_heads",
    "hidden_sizes",
    "layer_type",
    "v_head_dims",
    "intermediate_size",
    "num_labels",
    "n_layers",
    "n_head_kv",
    "o_lora_rank",
    "expert_layer_period",
    "expert_layer_offset",
    "hidden_state",
});

constexpr std::size_t kShortestName = 8;
constexpr std::size_t kMostEdits = 2;

std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

void refuse_misspelt_fields(const std::string& file, const Json& object, const std::string& prefix) {
  for (const auto& [name, value] : object.items()) {
    if (name.size() < kShortestName || name.size() > 64 || contains(kDecisive, name) || contains(kInnocent, name))
      continue;
    for (const std::string_view decisive : kDecisive) {
      if (decisive.size() < kShortestName || edits(name, decisive) > kMostEdits) continue;
      throw InputError(file, 0, prefix + name, "unknown field, " + std::string(decisive) + " is meant perhaps",
                       to_text(value));
    }
  }
}

}  // namespace kvpool::tools
