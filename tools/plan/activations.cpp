#include "tools/plan/activations.hpp"

#include <algorithm>
#include <cmath>

#include "tools/plan/layer_kinds.hpp"

namespace kvpool::tools {
namespace {

constexpr std::int64_t kRequestsWithLogits = 256;     // that get a token in one step, as engines do by default
constexpr double kMostBytes = 1152921504606846976.0;  // 2^60

double real(const Count& count, double otherwise = 0) { return count ? static_cast<double>(*count) : otherwise; }

// Elements per token; doubles, since a damaged configuration can exceed 64 bits.
class Elements {
 public:
  Elements(const ModelFacts& facts, const Heads& heads, std::int64_t ranks)
      : facts_(facts), heads_(heads), hidden_(real(facts.hidden_size)), ranks_(static_cast<double>(ranks)) {}

  [[nodiscard]] double layer(LayerKind kind) const { return 3 * hidden_ + std::max(mixer(kind), feed_forward()); }

 private:
  // Queries, keys, values and what the attention puts out; of states the projection into the layer and out of it.
  [[nodiscard]] double mixer(LayerKind kind) const {
    const auto query = static_cast<double>(heads_.query);
    if (kind == LayerKind::none) return 0;
    if (kind == LayerKind::state) return 4 * inner_width() / ranks_;
    if (kind == LayerKind::latent || kind == LayerKind::latent_and_index) {
      const LatentFacts& latent = facts_.latent;
      const double key = real(latent.qk_nope_head_dim) + real(latent.qk_rope_head_dim);
      const double value = real(latent.v_head_dim, real(latent.qk_nope_head_dim));
      const double compressed = real(latent.q_lora_rank) + real(latent.kv_lora_rank) + real(latent.qk_rope_head_dim);
      return compressed + query * 2 * (key + value) / ranks_;
    }
    const double own = std::max(static_cast<double>(heads_.key_value) / ranks_, 1.0);
    return static_cast<double>(heads_.size) * (2 * query / ranks_ + 2 * own);
  }

  [[nodiscard]] double inner_width() const {
    const StateFacts& state = facts_.state;
    if (state.linear_num_value_heads) {
      return 2 * real(state.linear_num_key_heads) * real(state.linear_key_head_dim) +
             real(state.linear_num_value_heads) * real(state.linear_value_head_dim);
    }
    if (state.intermediate_size) return real(state.intermediate_size);
    if (state.num_heads && state.head_dim) return real(state.num_heads) * real(state.head_dim);
    return hidden_ * real(state.expand, 2);
  }

  // Both halves of a gated layer and their product; with experts, of every expert that a token visits.
  [[nodiscard]] double feed_forward() const {
    const ExpertFacts& experts = facts_.experts;
    const double matrices = facts_.gated_mlp ? 3 : 2;
    const double dense = matrices * std::max(real(facts_.intermediate_size), real(experts.dense_intermediate_size));
    if (experts.num_experts.value_or(0) < 2) return dense / ranks_;
    const double width = real(experts.moe_intermediate_size, real(facts_.intermediate_size));
    const double visited = real(experts.experts_per_token, 1);
    return std::max(dense / ranks_, visited * (hidden_ + matrices * width / ranks_));
  }

  const ModelFacts& facts_;
  Heads heads_;
  double hidden_;
  double ranks_;
};

Result<Heads> heads_of(const ModelFacts& facts, const std::vector<LayerKind>& kinds) {
  Heads heads;
  heads.query = facts.num_attention_heads.value_or(1);
  const bool attends = std::any_of(kinds.begin(), kinds.end(), [](LayerKind kind) {
    return kind != LayerKind::state && kind != LayerKind::none && kind != LayerKind::latent &&
           kind != LayerKind::latent_and_index;
  });
  if (!attends) return heads;
  return attention_heads(facts);
}

}  // namespace

Result<std::vector<std::int64_t>> estimate_activations(const ModelFacts& facts, const ShardOptions& options,
                                                       std::int64_t step_tokens) {
  if (!facts.hidden_size) return bad_field(facts, "hidden_size", "is missing", "nothing");
  const auto kinds = layer_kinds(facts);
  if (!kinds) return kinds.error();
  const auto counts = stage_layers(facts, options.pipeline_parallel);
  if (!counts) return counts.error();
  const auto heads = heads_of(facts, *kinds);
  if (!heads) return heads.error();

  const Elements elements(facts, *heads, options.tensor_parallel);
  const auto element_bytes = static_cast<double>(size_in_bytes(model_dtype(facts)));
  const std::int64_t sampled = std::min(step_tokens, kRequestsWithLogits);
  const double logits =
      static_cast<double>(sampled) * real(facts.vocab_size) * static_cast<double>(size_in_bytes(DType::float32));
  std::vector<std::int64_t> bytes;
  auto kind = kinds->begin();
  for (const std::int64_t count : *counts) {
    double widest = 0;
    for (std::int64_t i = 0; i < count; ++i, ++kind) widest = std::max(widest, elements.layer(*kind));
    const bool last = bytes.size() + 1 == counts->size();
    const double stage = std::ceil(widest * static_cast<double>(step_tokens) * element_bytes) + (last ? logits : 0);
    if (!(stage < kMostBytes)) {
      return bad_field(facts, "hidden_size", "activations beyond 2^60 bytes", *facts.hidden_size);
    }
    bytes.push_back(static_cast<std::int64_t>(stage));
  }
  return bytes;
}

}  // namespace kvpool::tools
