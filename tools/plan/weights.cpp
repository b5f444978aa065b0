#include "tools/plan/weights.hpp"

#include <cmath>

#include "tools/plan/layer_kinds.hpp"
#include "tools/plan/sharding.hpp"

namespace kvpool::tools {
namespace {

constexpr double kMostBytes = 1152921504606846976.0;  // 2^60

// Parameters of one layer, or of embeddings. Doubles: exact up to 2^53, and no overflow beyond.
struct Parameters {
  double split = 0;       // divided over the tensor-parallel ranks
  double experts = 0;     // likewise, stored with the experts' number of bits
  double replicated = 0;  // on every rank
  double plain = 0;       // divided, never quantised

  Parameters& operator+=(const Parameters& other) {
    split += other.split;
    experts += other.experts;
    replicated += other.replicated;
    plain += other.plain;
    return *this;
  }
  [[nodiscard]] double total() const { return split + experts + replicated + plain; }
};

double real(const Count& count, double otherwise = 0) { return count ? static_cast<double>(*count) : otherwise; }

class Counter {
 public:
  Counter(const ModelFacts& facts, const Heads& heads)
      : facts_(facts), heads_(heads), hidden_(real(facts.hidden_size)) {}

  [[nodiscard]] Parameters layer(LayerKind kind, std::int64_t index) const {
    Parameters sum = mixer(kind);
    const bool own_feed_forward_layers = !facts_.pattern.hybrid_override_pattern.empty();
    if (!own_feed_forward_layers || kind == LayerKind::none) sum += feed_forward(index);
    return sum;
  }

  [[nodiscard]] Parameters embedding() const {
    Parameters sum;
    sum.plain = real(facts_.vocab_size) * hidden_;
    return sum;
  }

  // The encoder of an encoder-decoder model.
  [[nodiscard]] Parameters encoder() const {
    Parameters sum;
    const double layers = real(facts_.encoder.encoder_layers);
    sum.split = layers * (4 * hidden_ * hidden_ + 2 * hidden_ * real(facts_.encoder.encoder_ffn_dim));
    return sum;
  }

 private:
  [[nodiscard]] Parameters mixer(LayerKind kind) const {
    Parameters sum;
    switch (kind) {
      case LayerKind::none: break;
      case LayerKind::state: sum.split = state(); break;
      case LayerKind::latent:
      case LayerKind::latent_and_index: sum = latent(); break;
      case LayerKind::full_and_cross: sum.split = 2 * attention(); break;
      case LayerKind::full:
      case LayerKind::window:
      case LayerKind::chunked:
      case LayerKind::cross: sum.split = attention(); break;
    }
    return sum;
  }

  [[nodiscard]] double attention() const {
    const double gate = facts_.model_type == "qwen3_next" ? 1 : 0;
    const auto query = static_cast<double>(heads_.query);
    return hidden_ * static_cast<double>(heads_.size) *
           ((2 + gate) * query + 2 * static_cast<double>(heads_.key_value));
  }

  [[nodiscard]] Parameters latent() const {
    const LatentFacts& latent = facts_.latent;
    const auto query = static_cast<double>(heads_.query);
    const double rank = real(latent.kv_lora_rank);
    const double rope = real(latent.qk_rope_head_dim);
    const double nope = real(latent.qk_nope_head_dim);
    const double value = real(latent.v_head_dim, nope);
    Parameters sum;
    sum.replicated = hidden_ * (rank + rope);
    sum.split = rank * query * (nope + value) + query * value * hidden_;
    if (latent.q_lora_rank) {
      sum.replicated += hidden_ * real(latent.q_lora_rank);
      sum.split += real(latent.q_lora_rank) * query * (nope + rope);
    } else {
      sum.split += hidden_ * query * (nope + rope);
    }
    if (latent.index_head_dim) {
      const double index_heads = real(latent.index_n_heads, 64);
      const double from = latent.q_lora_rank ? real(latent.q_lora_rank) : hidden_;
      sum.replicated += real(latent.index_head_dim) * (from * index_heads + hidden_) + hidden_ * index_heads;
    }
    return sum;
  }

  [[nodiscard]] double state() const {
    const StateFacts& state = facts_.state;
    if (state.linear_num_value_heads) {
      const double key = real(state.linear_num_key_heads) * real(state.linear_key_head_dim);
      const double value = real(state.linear_num_value_heads) * real(state.linear_value_head_dim);
      return hidden_ * (2 * key + 3 * value + 2 * real(state.linear_num_value_heads));
    }
    const double inner = state.intermediate_size             ? real(state.intermediate_size)
                         : state.num_heads && state.head_dim ? real(state.num_heads) * real(state.head_dim)
                                                             : hidden_ * real(state.expand, 2);
    if (state.num_heads || state.head_dim || facts_.model_type == "mamba2") {
      const double heads = real(state.num_heads, inner / real(state.head_dim, 64));
      return hidden_ * (3 * inner + 2 * real(state.num_groups, 1) * real(state.state_size, 128) + heads);
    }
    const double step_rank = hidden_ / 16;
    const double state_size = real(state.state_size, 16);
    return 3 * hidden_ * inner + inner * (2 * step_rank + 3 * state_size);
  }

  [[nodiscard]] bool has_experts(std::int64_t index) const {
    const ExpertFacts& experts = facts_.experts;
    if (experts.num_experts.value_or(0) < 2 || index < experts.first_k_dense_replace.value_or(0)) return false;
    const std::int64_t period = experts.expert_layer_period.value_or(1);
    if (experts.expert_layer_offset) return index % period == *experts.expert_layer_offset;
    return (index + 1) % period == 0;
  }

  [[nodiscard]] Parameters feed_forward(std::int64_t index) const {
    const ExpertFacts& experts = facts_.experts;
    const double matrices = facts_.gated_mlp ? 3 : 2;
    Parameters sum;
    if (!has_experts(index)) {
      const bool mixed = experts.num_experts.value_or(0) > 1;
      const double width = mixed ? real(experts.dense_intermediate_size, real(facts_.intermediate_size))
                                 : real(facts_.intermediate_size);
      sum.split = matrices * hidden_ * width;
      return sum;
    }
    const double width = real(experts.moe_intermediate_size, real(facts_.intermediate_size));
    double shared = real(experts.shared_intermediate_size, real(experts.num_shared_experts) * width);
    if (facts_.model_type.starts_with("llama4")) shared = width;
    sum.experts = real(experts.num_experts) * matrices * hidden_ * width;
    sum.split = matrices * hidden_ * shared;
    sum.replicated = hidden_ * real(experts.num_experts);
    return sum;
  }

  const ModelFacts& facts_;
  Heads heads_;
  double hidden_;
};

// Bytes of a rank's part.
double bytes(const ModelFacts& facts, const Parameters& parameters, std::int64_t tensor_parallel) {
  const double plain = static_cast<double>(size_in_bytes(model_dtype(facts)));
  const double quantised = facts.quant.bits ? *facts.quant.bits / 8 : plain;
  const double split = facts.quant.experts_only ? plain : quantised;
  const auto ranks = static_cast<double>(tensor_parallel);
  return (parameters.split * split + parameters.experts * quantised + parameters.plain * plain) / ranks +
         parameters.replicated * split;
}

bool needs_heads(const std::vector<LayerKind>& kinds) {
  for (const LayerKind kind : kinds) {
    if (kind != LayerKind::state && kind != LayerKind::none) return true;
  }
  return false;
}

}  // namespace

Result<WeightEstimate> estimate_weights(const ModelFacts& facts, std::int64_t tensor_parallel,
                                        std::int64_t pipeline_parallel) {
  if (!facts.hidden_size) return bad_field(facts, "hidden_size", "is missing", "nothing");
  const auto kinds = layer_kinds(facts);
  if (!kinds) return kinds.error();
  const auto counts = stage_layers(facts, pipeline_parallel);
  if (!counts) return counts.error();
  Heads heads;
  if (needs_heads(*kinds) && !facts.latent.kv_lora_rank) {
    const auto found = attention_heads(facts);
    if (!found) return found.error();
    heads = *found;
  }
  if (facts.latent.kv_lora_rank) heads.query = facts.num_attention_heads.value_or(1);

  const Counter counter(facts, heads);
  WeightEstimate estimate;
  double parameters = 0;
  std::int64_t layer = 0;
  for (std::size_t stage = 0; stage < counts->size(); ++stage) {
    const bool first = stage == 0;
    const bool last = stage + 1 == counts->size();
    const bool copies_embedding = last && !first && facts.tie_word_embeddings;
    Parameters sum;
    if (first) sum += counter.embedding();
    if (first) sum += counter.encoder();
    if ((last && !facts.tie_word_embeddings) || copies_embedding) sum += counter.embedding();
    for (std::int64_t i = 0; i < (*counts)[stage]; ++i, ++layer) {
      sum += counter.layer((*kinds)[static_cast<std::size_t>(layer)], layer);
    }
    parameters += sum.total() - (copies_embedding ? counter.embedding().total() : 0);
    const double stage_bytes = std::ceil(bytes(facts, sum, tensor_parallel));
    if (!(stage_bytes < kMostBytes))
      return bad_field(facts, "hidden_size", "weights beyond 2^60 bytes", *facts.hidden_size);
    estimate.bytes_per_stage.push_back(static_cast<std::int64_t>(stage_bytes));
  }
  if (!(parameters < kMostBytes))
    return bad_field(facts, "hidden_size", "more than 2^60 parameters", *facts.hidden_size);
  estimate.parameters = static_cast<std::int64_t>(parameters);
  return estimate;
}

}  // namespace kvpool::tools
