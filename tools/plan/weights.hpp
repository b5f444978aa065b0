// How many bytes a model's weights take, counted from the shapes of its layers.
#pragma once

#include <cstdint>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "tools/plan/model_facts.hpp"

namespace kvpool::tools {

struct WeightEstimate {
  std::vector<std::int64_t> bytes_per_stage;  ///< of one rank of each pipeline stage
  std::int64_t parameters = 0;                ///< of the whole model
};

/// Matrices of attention, feed-forward, experts, states and embeddings; vectors (norms, biases) and encoders for
/// images or sound are left out, which the text models' parameter counts show to be well below 1 %.
/// Errors: bad_input naming the field without which nothing can be counted.
[[nodiscard]] Result<WeightEstimate> estimate_weights(const ModelFacts& facts, std::int64_t tensor_parallel,
                                                      std::int64_t pipeline_parallel);

}  // namespace kvpool::tools
