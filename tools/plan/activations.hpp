// How much memory a step's activations take at their highest, estimated from the shapes of the layers.
#pragma once

#include <cstdint>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "tools/plan/model_facts.hpp"
#include "tools/plan/sharding.hpp"

namespace kvpool::tools {

/// Bytes of one rank of each pipeline stage in a step of `step_tokens` tokens: what is alive at the same time in the
/// widest layer (residual stream, a layer's input and output, and the larger one of its mixer's and its feed-forward's
/// tensors), and on the last stage the logits of the requests that get a token. Workspaces of kernels, buffers of
/// collectives and captured graphs are not in it.
/// Errors: bad_input naming the field without which nothing can be counted.
[[nodiscard]] Result<std::vector<std::int64_t>> estimate_activations(const ModelFacts& facts,
                                                                     const ShardOptions& options,
                                                                     std::int64_t step_tokens);

}  // namespace kvpool::tools
