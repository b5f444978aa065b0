// What a model configuration says about its KV cache and its weights, without the file format.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kvpool/config/kv_cache_spec.hpp"

namespace kvpool::tools {

using Count = std::optional<std::int64_t>;

/// Multi-head latent attention.
struct LatentFacts {
  Count kv_lora_rank;  ///< set: the model uses latent attention
  Count qk_rope_head_dim, qk_nope_head_dim, v_head_dim, q_lora_rank;
  Count index_head_dim, index_n_heads;  ///< set: a small indexer chooses the tokens that are attended to
};

/// Recurrent layers; which fields are set tells which kind they are.
struct StateFacts {
  Count num_heads, head_dim, state_size, num_groups, conv_kernel, expand, intermediate_size;  ///< Mamba 1 and 2
  Count linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim;
  Count linear_conv_kernel_dim;
  std::optional<DType> ssm_dtype;  ///< of the recurrent state; empty: as the model
};

/// Which layer attends how, in the ways that configurations express it.
struct PatternFacts {
  std::vector<std::string> layer_types;  ///< one name a layer
  std::string hybrid_override_pattern;   ///< one letter a layer: M state, * attention, - feed-forward only
  Count full_attention_interval;         ///< every n-th layer attends, the others keep states
  Count attn_layer_period, attn_layer_offset;
  Count sliding_window, sliding_window_pattern, max_window_layers;
  std::optional<bool> use_sliding_window;
  Count attention_chunk_size, no_rope_layer_interval;
  std::vector<std::int64_t> no_rope_layers;          ///< 0: no position encoding, attends globally
  std::vector<std::int64_t> cross_attention_layers;  ///< these attend to the encoder only
  Count num_kv_shared_layers;                        ///< the last n layers reuse earlier layers' KV
};

struct ExpertFacts {
  Count num_experts, experts_per_token, moe_intermediate_size, num_shared_experts, shared_intermediate_size;
  Count first_k_dense_replace;  ///< the first n layers are dense
  Count expert_layer_period;    ///< every n-th layer has experts
  Count expert_layer_offset;
  Count dense_intermediate_size;  ///< of the dense layers, where it differs
};

struct EncoderFacts {
  Count max_source_positions;               ///< of an encoder-decoder model
  Count image_size, patch_size, max_tiles;  ///< of a vision encoder that cross layers attend to
  Count encoder_layers, encoder_ffn_dim;
};

enum class KvQuantisation { none, per_tensor, per_token_head };

struct QuantFacts {
  std::string method;          ///< "fp8", "mxfp4", "awq", ...; empty: not quantised
  std::optional<double> bits;  ///< per weight of the quantised layers
  bool experts_only = false;
  KvQuantisation kv = KvQuantisation::none;
};

struct ModelFacts {
  std::string file;                                ///< for messages
  std::map<std::string, std::string> other_names;  ///< of fields that this file calls differently, for messages
  std::string model_type;
  std::vector<std::string> architectures;
  std::int64_t num_layers = 0;
  Count hidden_size, num_attention_heads, num_kv_heads, head_dim;
  Count vocab_size, intermediate_size, max_position;
  std::string rope_type;  ///< how positions are stretched; empty: not said
  bool tie_word_embeddings = false;
  bool gated_mlp = true;
  std::optional<DType> dtype;
  LatentFacts latent;
  StateFacts state;
  PatternFacts pattern;
  ExpertFacts experts;
  EncoderFacts encoder;
  QuantFacts quant;
  bool has_other_encoders = false;  ///< vision or audio parts whose weights are not in this description
};

}  // namespace kvpool::tools
