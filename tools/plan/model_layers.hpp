// From a model's description to the layers whose KV each pipeline stage keeps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvpool/config/kv_cache_groups.hpp"
#include "kvpool/foundation/error.hpp"
#include "tools/plan/model_facts.hpp"
#include "tools/plan/sharding.hpp"

namespace kvpool::tools {

struct ModelLayers {
  std::vector<std::vector<NamedLayer>> stages;  ///< one rank of each pipeline stage
  std::int64_t block_size = 0;                  ///< tokens of an attention block; raised where states need longer ones
  std::int64_t max_encoder_tokens = 0;          ///< largest encoder input of one request
  std::vector<std::string> warnings;            ///< for people
};

/// Errors: bad_input naming field and value.
[[nodiscard]] Result<ModelLayers> model_layers(const ModelFacts& facts, const ShardOptions& options);

}  // namespace kvpool::tools
