// Which layer of a model attends how.
#pragma once

#include <string>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "tools/plan/model_facts.hpp"

namespace kvpool::tools {

enum class LayerKind {
  full,  ///< keeps the whole sequence
  window,
  chunked,
  latent,            ///< keeps one latent vector a token
  latent_and_index,  ///< and a key of the indexer that chooses what is attended to
  state,             ///< recurrent
  cross,             ///< attends to the encoder only
  full_and_cross,    ///< decoder layer of an encoder-decoder model
  none,              ///< keeps nothing: feed-forward only, or reuses another layer's KV
};

/// One entry per layer. Errors: bad_input naming field and value.
[[nodiscard]] Result<std::vector<LayerKind>> layer_kinds(const ModelFacts& facts);

/// The error that says `FILE: FIELD: PROBLEM, got VALUE`.
[[nodiscard]] Error bad_field(const ModelFacts& facts, const std::string& field, const std::string& problem,
                              const std::string& value);
[[nodiscard]] Error bad_field(const ModelFacts& facts, const std::string& field, const std::string& problem,
                              std::int64_t value);

}  // namespace kvpool::tools
