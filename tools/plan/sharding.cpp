#include "tools/plan/sharding.hpp"

#include <array>
#include <utility>

#include "tools/plan/layer_kinds.hpp"

namespace kvpool::tools {
namespace {

DType kv_dtype(const ModelFacts& facts, KvDType wanted) {
  static constexpr std::array kTypes = {DType::bfloat16, DType::bfloat16, DType::float16,
                                        DType::float32,  DType::fp8_e4m3, DType::fp8_e4m3};
  if (wanted != KvDType::automatic) return kTypes.at(static_cast<std::size_t>(wanted));
  return facts.quant.kv == KvQuantisation::none ? model_dtype(facts) : DType::fp8_e4m3;
}

bool has_scales(const ModelFacts& facts, KvDType wanted) {
  if (wanted == KvDType::automatic) return facts.quant.kv == KvQuantisation::per_token_head;
  return wanted == KvDType::fp8_per_token_head;
}

// fp32 scales of a vector that is quantised in groups of 128 elements.
std::int64_t scale_bytes(std::int64_t elements) { return (elements + 127) / 128 * size_in_bytes(DType::float32); }

Result<std::int64_t> needed(const ModelFacts& facts, const char* field, const Count& value) {
  if (!value) return bad_field(facts, field, "is missing", "nothing");
  return *value;
}

}  // namespace

Result<std::int64_t> heads_per_rank(const ModelFacts& facts, const char* field, std::int64_t heads,
                                    std::int64_t ranks) {
  if (heads % ranks == 0) return heads / ranks;
  if (ranks % heads == 0) return std::int64_t{1};
  return bad_field(facts, field, "cannot be spread over tensor-parallel size " + std::to_string(ranks), heads);
}

Result<Heads> attention_heads(const ModelFacts& facts) {
  const auto query = needed(facts, "num_attention_heads", facts.num_attention_heads);
  if (!query) return query.error();
  Heads heads;
  heads.query = *query;
  heads.key_value = facts.num_kv_heads.value_or(*query);
  if (heads.query % heads.key_value != 0) {
    return bad_field(facts, "num_key_value_heads", "does not divide num_attention_heads " + std::to_string(heads.query),
                     heads.key_value);
  }
  if (facts.head_dim) {
    heads.size = *facts.head_dim;
    return heads;
  }
  const auto hidden = needed(facts, "hidden_size", facts.hidden_size);
  if (!hidden) return hidden.error();
  if (*hidden % heads.query != 0) {
    return bad_field(facts, "hidden_size",
                     "no multiple of num_attention_heads " + std::to_string(heads.query) + ", and head_dim is missing",
                     *hidden);
  }
  heads.size = *hidden / heads.query;
  return heads;
}

Result<AttentionShape> attention_shape(const ModelFacts& facts, const ShardOptions& options) {
  const auto heads = attention_heads(facts);
  if (!heads) return heads.error();
  if (heads->query % options.tensor_parallel != 0) {
    return bad_field(facts, "num_attention_heads",
                     "no multiple of tensor-parallel size " + std::to_string(options.tensor_parallel), heads->query);
  }
  const auto own = heads_per_rank(facts, "num_key_value_heads", heads->key_value, options.tensor_parallel);
  if (!own) return own.error();
  AttentionShape shape;
  shape.num_kv_heads = *own;
  shape.head_size = heads->size;
  shape.dtype = kv_dtype(facts, options.kv_dtype);
  if (has_scales(facts, options.kv_dtype)) {
    // K and V of a head, and a fp32 scale for each.
    shape.head_content_bytes = 2 * (heads->size * size_in_bytes(shape.dtype) + size_in_bytes(DType::float32));
  }
  return shape;
}

Result<AttentionShape> latent_shape(const ModelFacts& facts, const ShardOptions& options) {
  const auto rope = needed(facts, "qk_rope_head_dim", facts.latent.qk_rope_head_dim);
  if (!rope) return rope.error();
  const std::int64_t query = facts.num_attention_heads.value_or(options.tensor_parallel);
  if (query % options.tensor_parallel != 0) {
    return bad_field(facts, "num_attention_heads",
                     "no multiple of tensor-parallel size " + std::to_string(options.tensor_parallel), query);
  }
  AttentionShape shape;
  shape.num_kv_heads = 1;
  shape.head_size = *facts.latent.kv_lora_rank + *rope;
  shape.dtype = kv_dtype(facts, options.kv_dtype);
  if (has_scales(facts, options.kv_dtype)) {
    shape.head_content_bytes = shape.head_size * size_in_bytes(shape.dtype) + size_in_bytes(DType::float32);
  } else if (facts.latent.index_head_dim && size_in_bytes(shape.dtype) == 1) {
    // Kernels that attend to chosen tokens want the rotated part in 16 bits and a scale per 128 of the rest.
    shape.head_content_bytes = *facts.latent.kv_lora_rank + scale_bytes(*facts.latent.kv_lora_rank) + 2 * *rope;
  }
  return shape;
}

AttentionShape index_shape(const ModelFacts& facts) {
  AttentionShape shape;
  shape.num_kv_heads = 1;
  shape.head_size = *facts.latent.index_head_dim + scale_bytes(*facts.latent.index_head_dim);
  shape.dtype = DType::uint8;
  return shape;
}

DType model_dtype(const ModelFacts& facts) {
  const DType type = facts.dtype.value_or(DType::bfloat16);
  return size_in_bytes(type) == 1 ? DType::bfloat16 : type;
}

Result<std::vector<std::int64_t>> stage_layers(const ModelFacts& facts, std::int64_t stages) {
  if (stages > facts.num_layers) {
    return bad_field(facts, "num_hidden_layers", "fewer than pipeline-parallel size " + std::to_string(stages),
                     facts.num_layers);
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), facts.num_layers / stages);
  const auto left_over = static_cast<std::size_t>(facts.num_layers % stages);
  for (std::size_t i = 0; i < left_over; ++i) ++counts[counts.size() - 2 - i];
  return counts;
}

}  // namespace kvpool::tools
