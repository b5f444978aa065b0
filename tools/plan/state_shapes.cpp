// Recurrent states: Mamba 1, Mamba 2 and gated delta nets.
#include "tools/plan/layer_kinds.hpp"
#include "tools/plan/sharding.hpp"

namespace kvpool::tools {
namespace {

using Tensors = std::vector<MambaStateTensor>;

// Inner width of a Mamba layer.
Result<std::int64_t> inner_size(const ModelFacts& facts) {
  if (facts.state.intermediate_size) return *facts.state.intermediate_size;
  if (facts.state.num_heads && facts.state.head_dim) return *facts.state.num_heads * *facts.state.head_dim;
  if (!facts.hidden_size) return bad_field(facts, "hidden_size", "is missing", "nothing");
  return *facts.hidden_size * facts.state.expand.value_or(2);
}

Status divides(const ModelFacts& facts, const char* field, std::int64_t value, std::int64_t ranks) {
  if (value % ranks == 0) return {};
  return bad_field(facts, field, "no multiple of tensor-parallel size " + std::to_string(ranks), value);
}

// Columns that a convolution keeps of the tokens before.
Result<std::int64_t> kept_columns(const ModelFacts& facts, const char* field, Count kernel) {
  const std::int64_t width = kernel.value_or(4);
  if (width < 2) return bad_field(facts, field, "expected at least 2", width);
  return width - 1;
}

DType ssm_dtype(const ModelFacts& facts) { return facts.state.ssm_dtype.value_or(model_dtype(facts)); }

Result<Tensors> delta_net(const ModelFacts& facts, std::int64_t ranks) {
  const StateFacts& state = facts.state;
  for (const auto& [field, value] : {std::pair{"linear_num_key_heads", state.linear_num_key_heads},
                                     std::pair{"linear_key_head_dim", state.linear_key_head_dim},
                                     std::pair{"linear_value_head_dim", state.linear_value_head_dim}}) {
    if (!value) return bad_field(facts, field, "is missing", "nothing");
  }
  const std::int64_t value_heads = *state.linear_num_value_heads;
  if (const Status status = divides(facts, "linear_num_value_heads", value_heads, ranks); !status)
    return status.error();
  if (const Status status = divides(facts, "linear_num_key_heads", *state.linear_num_key_heads, ranks); !status) {
    return status.error();
  }
  const std::int64_t channels =
      2 * *state.linear_num_key_heads * *state.linear_key_head_dim + value_heads * *state.linear_value_head_dim;
  const auto history = kept_columns(facts, "linear_conv_kernel_dim", state.linear_conv_kernel_dim);
  if (!history) return history.error();
  return Tensors{{{channels / ranks, *history}, model_dtype(facts)},
                 {{value_heads / ranks, *state.linear_value_head_dim, *state.linear_key_head_dim}, ssm_dtype(facts)}};
}

Result<Tensors> mamba_two(const ModelFacts& facts, std::int64_t ranks) {
  const auto inner = inner_size(facts);
  if (!inner) return inner.error();
  const std::int64_t head_dim = facts.state.head_dim.value_or(64);
  const std::int64_t heads = facts.state.num_heads.value_or(*inner / head_dim);
  if (const Status status = divides(facts, "mamba_num_heads", heads, ranks); !status) return status.error();
  // One group of B and C serves all heads, so every rank needs its own copy of it.
  std::int64_t groups = facts.state.num_groups.value_or(1);
  if (groups == 1) groups = ranks;
  if (const Status status = divides(facts, "mamba_n_groups", groups, ranks); !status) return status.error();
  const std::int64_t state_size = facts.state.state_size.value_or(128);
  const std::int64_t channels = heads * head_dim + 2 * groups * state_size;
  const auto history = kept_columns(facts, "mamba_d_conv", facts.state.conv_kernel);
  if (!history) return history.error();
  return Tensors{{{channels / ranks, *history}, model_dtype(facts)},
                 {{heads / ranks, head_dim, state_size}, ssm_dtype(facts)}};
}

Result<Tensors> mamba_one(const ModelFacts& facts, std::int64_t ranks) {
  const auto inner = inner_size(facts);
  if (!inner) return inner.error();
  if (const Status status = divides(facts, "intermediate_size", *inner, ranks); !status) return status.error();
  const auto history = kept_columns(facts, "mamba_d_conv", facts.state.conv_kernel);
  if (!history) return history.error();
  return Tensors{{{*inner / ranks, *history}, model_dtype(facts)},
                 {{*inner / ranks, facts.state.state_size.value_or(16)}, ssm_dtype(facts)}};
}

Result<Tensors> state_tensors(const ModelFacts& facts, std::int64_t ranks) {
  if (facts.state.linear_num_value_heads) return delta_net(facts, ranks);
  if (facts.state.num_heads || facts.state.head_dim || facts.model_type == "mamba2") return mamba_two(facts, ranks);
  if (facts.state.state_size || facts.model_type == "mamba" || facts.model_type == "falcon_mamba") {
    return mamba_one(facts, ranks);
  }
  return bad_field(facts, "layer_types", "recurrent layers, but no field describes their state", facts.model_type);
}

}  // namespace

Result<MambaSpec> state_spec(const ModelFacts& facts, const ShardOptions& options) {
  auto tensors = state_tensors(facts, options.tensor_parallel);
  if (!tensors) return tensors.error();
  MambaSpec spec;
  spec.block_size = options.block_size;
  spec.states = std::move(*tensors);
  spec.cache_mode = options.mamba_mode;
  return spec;
}

}  // namespace kvpool::tools
