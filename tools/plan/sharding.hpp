// What one rank holds of a layer.
#pragma once

#include <cstdint>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "tools/plan/model_facts.hpp"

namespace kvpool::tools {

enum class KvDType { automatic, bf16, fp16, fp32, fp8, fp8_per_token_head };

struct ShardOptions {
  std::int64_t tensor_parallel = 1;
  std::int64_t pipeline_parallel = 1;
  std::int64_t block_size = 16;  ///< tokens
  KvDType kv_dtype = KvDType::automatic;
  MambaCacheMode mamba_mode = MambaCacheMode::align;
};

/// Heads of one rank: an equal share, or the same head on several ranks when there are fewer heads than ranks;
/// never a part of a head. Errors: bad_input naming `field`.
[[nodiscard]] Result<std::int64_t> heads_per_rank(const ModelFacts& facts, const char* field, std::int64_t heads,
                                                  std::int64_t ranks);

/// Query and KV heads of the whole model, and elements of a head. Errors: bad_input naming the field that is
/// missing or contradicts another one.
struct Heads {
  std::int64_t query = 0;
  std::int64_t key_value = 0;
  std::int64_t size = 0;
};
[[nodiscard]] Result<Heads> attention_heads(const ModelFacts& facts);

/// Shape of the model's K and V on one rank.
[[nodiscard]] Result<AttentionShape> attention_shape(const ModelFacts& facts, const ShardOptions& options);

/// Shape of the latent vector, the same on every rank.
[[nodiscard]] Result<AttentionShape> latent_shape(const ModelFacts& facts, const ShardOptions& options);

/// Shape of the key that an indexer keeps of a token: bytes of fp8 and a fp32 scale for every 128 of them, whatever
/// K and V are stored as; the same on every rank. Precondition: the model has an indexer.
[[nodiscard]] AttentionShape index_shape(const ModelFacts& facts);

/// The recurrent state of one layer on one rank; block size as in the options.
[[nodiscard]] Result<MambaSpec> state_spec(const ModelFacts& facts, const ShardOptions& options);

/// Element type of weights and, unless asked otherwise, of K and V.
[[nodiscard]] DType model_dtype(const ModelFacts& facts);

/// Layers of each pipeline stage: equal parts; what is left over goes to the stages before the last one, which has
/// the output head. Errors: bad_input when there are more stages than layers.
[[nodiscard]] Result<std::vector<std::int64_t>> stage_layers(const ModelFacts& facts, std::int64_t stages);

}  // namespace kvpool::tools
