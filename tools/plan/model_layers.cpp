#include "tools/plan/model_layers.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "tools/plan/layer_kinds.hpp"

namespace kvpool::tools {
namespace {

constexpr std::int64_t kKernelTokens = 16;  // attention blocks that make room for a state are multiples of this

constexpr std::int64_t kLargestPage = std::int64_t{1} << 40;

constexpr std::array kKnownTypes = std::to_array<std::string_view>({
    "llama",        "llama4",      "llama4_text", "mllama",      "mllama_text_model",
    "qwen2",        "qwen2_moe",   "qwen3",       "qwen3_moe",   "qwen3_next",
    "mistral",      "mistral3",    "mixtral",     "gemma",       "gemma2",
    "gemma3",       "gemma3_text", "phi3",        "deepseek_v2", "deepseek_v3",
    "deepseek_v32", "kimi_k2",     "gpt_oss",     "glm4_moe",    "glm4",
    "jamba",        "nemotron_h",  "mamba",       "mamba2",      "falcon_mamba",
    "whisper",      "cohere2",
});

constexpr std::array kKnownRopes =
    std::to_array<std::string_view>({"", "default", "linear", "dynamic", "yarn", "longrope", "su", "llama3", "mrope"});

// Specs of the kinds of layers that a model has, made when first asked for.
class SpecMaker {
 public:
  SpecMaker(const ModelFacts& facts, const ShardOptions& options) : facts_(facts), options_(options) {}

  [[nodiscard]] Result<LayerSpec> make(LayerKind kind) const {
    if (kind == LayerKind::state) return state();
    if (kind == LayerKind::latent) return latent(latent_shape(facts_, options_));
    if (kind == LayerKind::latent_and_index) return latent(index_shape(facts_));
    const auto shape = attention_shape(facts_, options_);
    if (!shape) return shape.error();
    if (kind == LayerKind::window) return window(*shape);
    if (kind == LayerKind::chunked) return chunked(*shape);
    if (kind == LayerKind::cross) return cross(*shape);
    FullAttentionSpec spec;
    spec.block_size = options_.block_size;
    spec.shape = *shape;
    return LayerSpec{spec};
  }

 private:
  [[nodiscard]] Result<LayerSpec> state() const {
    auto spec = state_spec(facts_, options_);
    if (!spec) return spec.error();
    return LayerSpec{std::move(*spec)};
  }
  [[nodiscard]] Result<LayerSpec> latent(const Result<AttentionShape>& shape) const {
    if (!shape) return shape.error();
    MlaAttentionSpec spec;
    spec.block_size = options_.block_size;
    spec.shape = *shape;
    return LayerSpec{spec};
  }
  [[nodiscard]] LayerSpec window(const AttentionShape& shape) const {
    SlidingWindowSpec spec;
    spec.block_size = options_.block_size;
    spec.shape = shape;
    spec.sliding_window = *facts_.pattern.sliding_window;
    return spec;
  }
  [[nodiscard]] LayerSpec chunked(const AttentionShape& shape) const {
    ChunkedLocalAttentionSpec spec;
    spec.block_size = options_.block_size;
    spec.shape = shape;
    spec.attention_chunk_size = *facts_.pattern.attention_chunk_size;
    return spec;
  }
  [[nodiscard]] LayerSpec cross(const AttentionShape& shape) const {
    CrossAttentionSpec spec;
    spec.block_size = options_.block_size;
    spec.shape = shape;
    return spec;
  }

  const ModelFacts& facts_;
  const ShardOptions& options_;
};

struct Caches {
  std::string_view suffix;
  LayerKind kind;
};

// What a layer of this kind keeps, and how its caches are called.
std::vector<Caches> caches_of(LayerKind kind) {
  if (kind == LayerKind::none) return {};
  if (kind == LayerKind::latent_and_index) {
    return {{"self_attn", LayerKind::latent}, {"self_attn.indexer", LayerKind::latent_and_index}};
  }
  if (kind == LayerKind::state) return {{"mixer", kind}};
  if (kind == LayerKind::cross) return {{"cross_attn", kind}};
  if (kind == LayerKind::full_and_cross) return {{"self_attn", LayerKind::full}, {"cross_attn", LayerKind::cross}};
  return {{"self_attn", kind}};
}

std::int64_t bytes_per_token(LayerSpec spec) {
  std::visit([](auto& layer) { layer.block_size = 1; }, spec);
  return page_size_bytes(to_group_spec(spec));
}

// A state takes a whole block, so blocks of attention layers are made as long as a state needs.
Result<std::int64_t> block_size_for_states(const ModelFacts& facts, const ShardOptions& options,
                                           const std::vector<LayerKind>& kinds) {
  if (std::find(kinds.begin(), kinds.end(), LayerKind::state) == kinds.end()) return options.block_size;
  const SpecMaker maker(facts, options);
  const auto state = maker.make(LayerKind::state);
  if (!state) return state.error();
  std::int64_t token_bytes = 0;
  for (const LayerKind kind : kinds) {
    if (kind == LayerKind::state || kind == LayerKind::none) continue;
    const auto spec = maker.make(kind);
    if (!spec) return spec.error();
    token_bytes = std::max(token_bytes, bytes_per_token(*spec));
  }
  if (token_bytes == 0) return options.block_size;
  const std::int64_t state_bytes = page_size_bytes(to_group_spec(*state));
  if (state_bytes > kLargestPage || token_bytes > kLargestPage) {
    return bad_field(facts, "num_hidden_layers", "a layer keeps more than 2^40 bytes for one token",
                     std::max(state_bytes, token_bytes));
  }
  const std::int64_t step = kKernelTokens * token_bytes;
  return std::max(options.block_size, (state_bytes / step + (state_bytes % step > 0 ? 1 : 0)) * kKernelTokens);
}

// Patches of all tiles of an image, each tile with one token of its own.
Result<std::int64_t> encoder_tokens(const ModelFacts& facts) {
  const EncoderFacts& encoder = facts.encoder;
  if (encoder.max_source_positions) return *encoder.max_source_positions;
  if (facts.pattern.cross_attention_layers.empty()) return std::int64_t{0};
  if (!encoder.image_size) return bad_field(facts, "vision_config.image_size", "is missing", "nothing");
  if (!encoder.patch_size) return bad_field(facts, "vision_config.patch_size", "is missing", "nothing");
  if (*encoder.image_size > 65'536) {
    return bad_field(facts, "vision_config.image_size", "expected at most 65536", *encoder.image_size);
  }
  if (encoder.max_tiles.value_or(1) > 4096) {
    return bad_field(facts, "vision_config.max_num_tiles", "expected at most 4096", *encoder.max_tiles);
  }
  const std::int64_t patches = *encoder.image_size / *encoder.patch_size;
  return (patches * patches + 1) * encoder.max_tiles.value_or(1);
}

void warn_about_model(const ModelFacts& facts, std::vector<std::string>& warnings) {
  if (std::find(kKnownTypes.begin(), kKnownTypes.end(), facts.model_type) == kKnownTypes.end()) {
    warnings.push_back("model_type '" + facts.model_type +
                       "' is not known; planned from the usual field names, check the layers");
  }
  if (!facts.quant.method.empty() && !facts.quant.bits) {
    warnings.push_back("quantization_config.quant_method '" + facts.quant.method +
                       "' does not say how many bits a weight has; weights are counted as not quantised");
  }
  if (std::find(kKnownRopes.begin(), kKnownRopes.end(), facts.rope_type) == kKnownRopes.end()) {
    warnings.push_back("rope_scaling.rope_type '" + facts.rope_type +
                       "' is not known; the length is taken to be that of the position embeddings");
  }
  if (!facts.dtype) warnings.emplace_back("torch_dtype is missing; counted as bfloat16");
}

}  // namespace

Result<ModelLayers> model_layers(const ModelFacts& facts, const ShardOptions& wanted) {
  const auto kinds = layer_kinds(facts);
  if (!kinds) return kinds.error();
  const auto counts = stage_layers(facts, wanted.pipeline_parallel);
  if (!counts) return counts.error();
  const auto tokens = encoder_tokens(facts);
  if (!tokens) return tokens.error();
  const auto block_size = block_size_for_states(facts, wanted, *kinds);
  if (!block_size) return block_size.error();

  ModelLayers result;
  warn_about_model(facts, result.warnings);
  ShardOptions options = wanted;
  options.block_size = result.block_size = *block_size;
  result.max_encoder_tokens = *tokens;
  if (options.block_size != wanted.block_size) {
    result.warnings.push_back("block size raised from " + std::to_string(wanted.block_size) + " to " +
                              std::to_string(options.block_size) + " tokens, so that a block holds a recurrent state");
  }
  const SpecMaker maker(facts, options);
  std::map<LayerKind, LayerSpec> made;
  std::size_t layer = 0;
  for (const std::int64_t count : *counts) {
    std::vector<NamedLayer> stage;
    for (std::int64_t i = 0; i < count; ++i, ++layer) {
      for (const auto& [suffix, kind] : caches_of((*kinds)[layer])) {
        auto found = made.find(kind);
        if (found == made.end()) {
          auto spec = maker.make(kind);
          if (!spec) return spec.error();
          found = made.emplace(kind, std::move(*spec)).first;
        }
        stage.push_back({"layers." + std::to_string(layer) + "." + std::string(suffix), found->second});
      }
    }
    result.stages.push_back(std::move(stage));
  }
  return result;
}

}  // namespace kvpool::tools
