// Shape of the small transformer that `kvpool launch` runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvpool/config/kv_cache_spec.hpp"
#include "kvpool/foundation/error.hpp"

namespace kvpool::launch {

struct ModelConfig {
  std::int64_t num_layers = 2;
  std::int64_t hidden_size = 512;
  std::int64_t num_query_heads = 8;
  std::int64_t num_kv_heads = 2;
  std::int64_t head_size = 64;
  DType kv_dtype = DType::float32;
  std::uint64_t seed = 1;
  /// One entry per layer; 0: the layer sees everything, else the window in tokens (current one included).
  std::vector<std::int64_t> sliding_windows = {0, 0};
};

/// Reads a Hugging Face style configuration (num_hidden_layers, hidden_size, num_attention_heads,
/// num_key_value_heads, head_dim, torch_dtype, sliding_window, layer_types, seed). Missing fields keep the
/// defaults above. Errors: bad_input with file, field and value.
[[nodiscard]] Result<ModelConfig> load_model_config(const std::string& path);

/// Same, from text; `name` is used in messages.
[[nodiscard]] Result<ModelConfig> parse_model_config(const std::string& text, const std::string& name);

/// Rules between the fields. Errors: invalid_config.
[[nodiscard]] Status validate(const ModelConfig& config);

/// "layer.0", "layer.1", ...: names used in KV cache groups.
[[nodiscard]] std::string layer_name(std::int64_t layer);

}  // namespace kvpool::launch
