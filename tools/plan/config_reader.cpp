#include "tools/plan/config_reader.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "tools/plan/config_fields.hpp"
#include "tools/trace/input_error.hpp"
#include "tools/trace/input_file.hpp"

namespace kvpool::tools {
namespace {

constexpr std::size_t kLargestFile = std::size_t{16} << 20;
constexpr int kDeepestNesting = 32;
constexpr std::int64_t kMostLayers = 4096;

Json parse_strictly(const std::string& file, std::string_view text) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kDeepestNesting) throw InputError(file, 0, "", "nested deeper than 32 levels");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw InputError(file, 0, parsed.get<std::string>(), "given twice");
    }
    return true;
  };
  try {
    Json parsed = Json::parse(text.begin(), text.end(), check);
    if (!parsed.is_object()) throw InputError(file, 0, "", "expected a JSON object", shortened(to_text(parsed)));
    return parsed;
  } catch (const Json::exception& error) {
    throw InputError(file, 0, "", error.what());
  }
}

std::optional<DType> dtype_of(const ConfigFields& fields, std::initializer_list<const char*> names) {
  std::string name = fields.text(names);
  if (name.empty() || name == "auto") return std::nullopt;
  if (name.starts_with("torch.")) name.erase(0, std::strlen("torch."));
  static constexpr std::array<std::pair<std::string_view, DType>, 8> kNames = {{{"float32", DType::float32},
                                                                                {"float", DType::float32},
                                                                                {"float16", DType::float16},
                                                                                {"half", DType::float16},
                                                                                {"bfloat16", DType::bfloat16},
                                                                                {"float8_e4m3fn", DType::fp8_e4m3},
                                                                                {"float8_e5m2", DType::fp8_e5m2},
                                                                                {"uint8", DType::uint8}}};
  for (const auto& [known, type] : kNames) {
    if (known == name) return type;
  }
  for (const char* field : names) {
    if (fields.has(field)) fields.refuse(field, "unknown element type");
  }
  return std::nullopt;
}

void read_pattern(const ConfigFields& fields, PatternFacts& pattern) {
  pattern.layer_types = fields.texts("layer_types");
  if (pattern.layer_types.empty()) pattern.layer_types = fields.texts("layers_block_type");
  pattern.hybrid_override_pattern = fields.text({"hybrid_override_pattern"});
  pattern.full_attention_interval = fields.integer({"full_attention_interval"});
  pattern.attn_layer_period = fields.integer({"attn_layer_period"});
  pattern.attn_layer_offset = fields.integer({"attn_layer_offset"}, 0);
  pattern.sliding_window = fields.integer({"sliding_window"});
  pattern.sliding_window_pattern = fields.integer({"sliding_window_pattern", "_sliding_window_pattern"});
  pattern.max_window_layers = fields.integer({"max_window_layers"}, 0);
  pattern.use_sliding_window = fields.boolean({"use_sliding_window"});
  pattern.attention_chunk_size = fields.integer({"attention_chunk_size"});
  pattern.no_rope_layer_interval = fields.integer({"no_rope_layer_interval"});
  pattern.no_rope_layers = fields.integers("no_rope_layers");
  pattern.cross_attention_layers = fields.integers("cross_attention_layers");
  pattern.num_kv_shared_layers = fields.integer({"num_kv_shared_layers"}, 0);
}

void read_latent(const ConfigFields& fields, LatentFacts& latent) {
  latent.kv_lora_rank = fields.integer({"kv_lora_rank"});
  latent.qk_rope_head_dim = fields.integer({"qk_rope_head_dim"}, 0);
  latent.qk_nope_head_dim = fields.integer({"qk_nope_head_dim"}, 0);
  latent.v_head_dim = fields.integer({"v_head_dim"});
  latent.q_lora_rank = fields.integer({"q_lora_rank"});
  latent.index_head_dim = fields.integer({"index_head_dim"});
  latent.index_n_heads = fields.integer({"index_n_heads"});
  if (!fields.has("index_topk") && !latent.index_head_dim) return;
  const char* name = fields.has("index_topk") ? "index_topk" : "index_head_dim";
  (void)fields.integer({"index_topk"});
  if (!latent.kv_lora_rank) fields.refuse(name, "indexers are known beside latent attention (kv_lora_rank) only");
  if (!latent.index_head_dim) fields.refuse(name, "needs index_head_dim");
}

// Pure state models call their heads as others call their attention heads.
void read_state(const ConfigFields& fields, StateFacts& state, bool pure) {
  state.num_heads =
      pure ? fields.integer({"num_heads", "mamba_num_heads"}) : fields.integer({"mamba_num_heads", "mamba_n_heads"});
  state.head_dim =
      pure ? fields.integer({"head_dim", "mamba_head_dim"}) : fields.integer({"mamba_head_dim", "mamba_d_head"});
  state.state_size = fields.integer({"ssm_state_size", "mamba_d_state", "state_size"});
  state.num_groups = fields.integer({"mamba_n_groups", "n_groups"});
  state.conv_kernel = fields.integer({"mamba_d_conv", "conv_kernel"});
  state.expand = fields.integer({"mamba_expand", "expand"});
  if (pure) state.intermediate_size = fields.integer({"intermediate_size"});
  state.linear_num_key_heads = fields.integer({"linear_num_key_heads"});
  state.linear_num_value_heads = fields.integer({"linear_num_value_heads"});
  state.linear_key_head_dim = fields.integer({"linear_key_head_dim"});
  state.linear_value_head_dim = fields.integer({"linear_value_head_dim"});
  state.linear_conv_kernel_dim = fields.integer({"linear_conv_kernel_dim"});
  state.ssm_dtype = dtype_of(fields, {"mamba_ssm_cache_dtype", "mamba_ssm_dtype"});
}

void read_experts(const ConfigFields& fields, ExpertFacts& experts) {
  experts.num_experts = fields.integer({"num_local_experts", "num_experts", "n_routed_experts"}, 0);
  experts.experts_per_token = fields.integer({"num_experts_per_tok", "experts_per_token"});
  experts.moe_intermediate_size = fields.integer({"moe_intermediate_size"});
  experts.num_shared_experts = fields.integer({"n_shared_experts"}, 0);
  experts.shared_intermediate_size =
      fields.integer({"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"}, 0);
  experts.first_k_dense_replace = fields.integer({"first_k_dense_replace"}, 0);
  experts.expert_layer_period =
      fields.integer({"expert_layer_period", "decoder_sparse_step", "interleave_moe_layer_step"});
  experts.expert_layer_offset = fields.integer({"expert_layer_offset"}, 0);
  experts.dense_intermediate_size = fields.integer({"intermediate_size_mlp"});
  if (experts.num_experts && experts.experts_per_token && *experts.experts_per_token > *experts.num_experts &&
      *experts.num_experts > 0) {
    const char* name = fields.has("num_experts_per_tok") ? "num_experts_per_tok" : "experts_per_token";
    fields.refuse(name, "more than the " + std::to_string(*experts.num_experts) + " experts");
  }
}

void read_encoder(const std::string& file, const ConfigFields& fields, EncoderFacts& encoder) {
  encoder.max_source_positions = fields.integer({"max_source_positions"});
  encoder.encoder_layers = fields.integer({"encoder_layers"}, 0);
  encoder.encoder_ffn_dim = fields.integer({"encoder_ffn_dim"});
  const Json* vision = fields.object("vision_config");
  if (vision == nullptr || !fields.has("cross_attention_layers")) return;
  const ConfigFields image(file, *vision, "vision_config.");
  encoder.image_size = image.integer({"image_size"});
  encoder.patch_size = image.integer({"patch_size"});
  encoder.max_tiles = image.integer({"max_num_tiles"});
}

KvQuantisation kv_quantisation(const std::string& file, const ConfigFields& quant) {
  const std::string algorithm = quant.text({"kv_cache_quant_algo"});
  if (!algorithm.empty() && algorithm != "FP8") quant.refuse("kv_cache_quant_algo", "only FP8 is known");
  const Json* scheme = quant.object("kv_cache_scheme");
  if (scheme == nullptr) return algorithm.empty() ? KvQuantisation::none : KvQuantisation::per_tensor;
  const ConfigFields fields(file, *scheme, "quantization_config.kv_cache_scheme.");
  if (const auto bits = fields.integer({"num_bits"}); bits && *bits != 8)
    fields.refuse("num_bits", "only 8 bits are known");
  if (const std::string type = fields.text({"type"}); !type.empty() && type != "float") {
    fields.refuse("type", "only float is known");
  }
  const std::string strategy = fields.text({"strategy"});
  if (strategy.empty() || strategy == "tensor" || strategy == "attn_head") return KvQuantisation::per_tensor;
  if (strategy == "token" || strategy == "token_head") return KvQuantisation::per_token_head;
  fields.refuse("strategy", "expected tensor, attn_head or token");
}

constexpr std::int64_t kMostBits = 64;

std::optional<double> checked_bits(const ConfigFields& fields, std::initializer_list<const char*> names) {
  const auto bits = fields.integer(names);
  if (!bits) return std::nullopt;
  for (const char* name : names) {
    if (*bits > kMostBits && fields.has(name)) fields.refuse(name, "expected at most 64");
  }
  return static_cast<double>(*bits);
}

// Bits of a quantised weight, as far as the usual methods say; scales of blocks included where they are of one size.
std::optional<double> weight_bits(const std::string& file, const ConfigFields& quant, const std::string& method) {
  if (const auto bits = checked_bits(quant, {"bits", "w_bit"})) return bits;
  if (quant.boolean({"load_in_4bit", "_load_in_4bit"}).value_or(false)) return 4.0;
  if (quant.boolean({"load_in_8bit", "_load_in_8bit"}).value_or(false)) return 8.0;
  const std::string algorithm = quant.text({"quant_algo"});
  if (method == "fp8" || method == "fbgemm_fp8" || algorithm == "FP8") return 8.0;
  if (method == "mxfp4") return 4.25;    // a shared 8-bit exponent for 32 weights
  if (algorithm == "NVFP4") return 4.5;  // a scale of 8 bits for 16 weights
  if (const Json* groups = quant.object("config_groups")) {
    for (const auto& [name, group] : groups->items()) {
      if (!group.is_object()) continue;
      const ConfigFields fields(file, group, "quantization_config.config_groups." + name + ".");
      const Json* weights = fields.object("weights");
      if (weights == nullptr) continue;
      const ConfigFields weight_fields(file, *weights, "quantization_config.config_groups." + name + ".weights.");
      if (const auto bits = checked_bits(weight_fields, {"num_bits"})) return bits;
    }
  }
  return std::nullopt;
}

void read_quantisation(const std::string& file, const ConfigFields& fields, QuantFacts& quant) {
  const Json* object = fields.object("quantization_config");
  if (object == nullptr) object = fields.object("compression_config");
  if (object == nullptr) return;
  const ConfigFields quant_fields(file, *object, "quantization_config.");
  quant.method = quant_fields.text({"quant_method"});
  quant.bits = weight_bits(file, quant_fields, quant.method);
  quant.experts_only = quant.method == "mxfp4";
  quant.kv = kv_quantisation(file, quant_fields);
}

// Length that the position encoding is stretched to, where the configuration counts it apart.
Count stretched_length(const std::string& file, const ConfigFields& fields, Count length, std::string& type) {
  const Json* scaling = fields.object("rope_scaling");
  if (scaling == nullptr) scaling = fields.object("rope_parameters");
  if (scaling == nullptr || !length) return length;
  const ConfigFields rope(file, *scaling, "rope_scaling.");
  type = rope.text({"rope_type", "type"});
  if (type != "linear" && type != "dynamic" && type != "yarn") return length;
  const double factor = rope.number({"factor"}).value_or(1.0);
  if (factor < 1.0 || factor > 1e6) rope.refuse("factor", "expected 1 to 1e6");
  const auto original = rope.integer({"original_max_position_embeddings"});
  const std::int64_t base = type == "yarn" ? original.value_or(*length) : *length;
  return static_cast<std::int64_t>(std::floor(static_cast<double>(base) * factor));
}

void read_shape(const ConfigFields& fields, ModelFacts& facts, bool pure_state) {
  facts.hidden_size = fields.integer({"hidden_size", "d_model", "n_embd"});
  facts.vocab_size = fields.integer({"vocab_size"});
  if (!pure_state) {
    facts.num_attention_heads = fields.integer({"num_attention_heads", "n_head", "n_heads", "decoder_attention_heads"});
    facts.num_kv_heads = fields.integer({"num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"});
    if (!facts.num_kv_heads && fields.boolean({"multi_query"}).value_or(false)) facts.num_kv_heads = 1;
    facts.head_dim = fields.integer({"head_dim", "attention_head_dim", "kv_channels"});
    facts.intermediate_size = fields.integer({"intermediate_size", "decoder_ffn_dim", "n_inner", "ffn_hidden_size"});
  }
  facts.tie_word_embeddings = fields.boolean({"tie_word_embeddings"}).value_or(false);
  facts.dtype = dtype_of(fields, {"dtype", "torch_dtype"});
}

// Facts that must not differ between a model and the larger one around it.
void refuse_contradictions(const std::string& prefix, const ConfigFields& outer, const Json& inner) {
  for (const char* name :
       {"num_hidden_layers", "num_key_value_heads", "num_attention_heads", "head_dim", "kv_lora_rank"}) {
    if (!outer.has(name) || !inner.contains(name) || inner[name].is_null() || outer.json()[name] == inner[name])
      continue;
    outer.refuse(name, "contradicts " + prefix + name + " " + to_text(inner[name]));
  }
}

struct Nested {
  Json merged;
  std::string prefix;
  bool is_nested = false;
};

Nested find_text_model(const std::string& file, const Json& root) {
  const ConfigFields outer(file, root, "");
  if (const Json* thinker = outer.object("thinker_config")) return find_text_model(file, *thinker);
  for (const char* name : {"text_config", "llm_config", "language_config"}) {
    const Json* inner = outer.object(name);
    if (inner == nullptr) continue;
    const std::string prefix = std::string(name) + ".";
    refuse_contradictions(prefix, outer, *inner);
    refuse_misspelt_fields(file, *inner, prefix);
    Nested nested{root, prefix, true};
    nested.merged.erase(name);
    for (const auto& [key, value] : inner->items()) {
      if (!value.is_null()) nested.merged[key] = value;
    }
    return nested;
  }
  return {root, "", false};
}

}  // namespace

ModelFacts parse_model_config(const std::string& name, std::string_view text) {
  const Json root = parse_strictly(name, text);
  refuse_misspelt_fields(name, root, "");
  const Nested nested = find_text_model(name, root);
  const ConfigFields fields(name, nested.merged, nested.prefix);

  ModelFacts facts;
  facts.file = name;
  facts.model_type = fields.text({"model_type"});
  facts.architectures = fields.texts("architectures");
  const bool pure_state =
      facts.model_type == "mamba" || facts.model_type == "mamba2" || facts.model_type == "falcon_mamba";
  const auto layers = fields.integer({"num_hidden_layers", "num_layers", "n_layer", "n_layers", "decoder_layers"});
  if (!layers) fields.refuse("num_hidden_layers", "is missing");
  if (*layers > kMostLayers) fields.refuse("num_hidden_layers", "expected at most 4096");
  facts.num_layers = *layers;
  read_shape(fields, facts, pure_state);
  facts.max_position = stretched_length(name, fields,
                                        fields.integer({"max_position_embeddings", "n_positions", "max_sequence_length",
                                                        "seq_length", "max_target_positions"}),
                                        facts.rope_type);
  facts.gated_mlp = facts.model_type != "whisper" && facts.model_type != "gpt2" && facts.model_type != "falcon" &&
                    facts.model_type != "nemotron_h";
  read_latent(fields, facts.latent);
  read_state(fields, facts.state, pure_state);
  read_pattern(fields, facts.pattern);
  read_experts(fields, facts.experts);
  read_encoder(name, fields, facts.encoder);
  read_quantisation(name, fields, facts.quant);
  facts.other_names = fields.other_names();
  if (!fields.has("layer_types") && fields.has("layers_block_type"))
    facts.other_names["layer_types"] = "layers_block_type";
  facts.has_other_encoders = nested.is_nested || fields.has("vision_config") || fields.has("audio_config");
  return facts;
}

ModelFacts read_model_config(const std::string& path) {
  InputFile file(path);
  std::vector<unsigned char> bytes(kLargestFile + 1);
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const std::size_t read = file.read(std::span(bytes).subspan(filled));
    if (read == 0) break;
    filled += read;
  }
  if (filled > kLargestFile) throw InputError(path, 0, "", "larger than 16 MiB");
  const std::string text(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(filled));
  return parse_model_config(path, text);
}

}  // namespace kvpool::tools
