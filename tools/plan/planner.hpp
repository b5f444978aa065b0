// What of a model fits on a set of GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvpool/config/memory_plan.hpp"
#include "kvpool/foundation/error.hpp"
#include "tools/plan/model_facts.hpp"
#include "tools/plan/sharding.hpp"

namespace kvpool::tools {

/// What `kvpool plan` is asked. Bytes are those of one GPU.
struct PlanRequest {
  std::int64_t gpu_memory = 0;
  double utilization = 0.92;
  ShardOptions shard;
  std::optional<std::int64_t> max_model_len;         ///< empty: the model's own
  std::optional<std::int64_t> weights;               ///< empty: estimated from the shapes
  std::optional<std::int64_t> peak;                  ///< activations at their highest; empty: estimated
  std::optional<std::int64_t> max_in_flight_tokens;  ///< empty: 8192 per pipeline stage
};

/// A named part of one GPU's memory. Where the parts exceed the memory, one of them is negative.
struct LedgerEntry {
  std::int64_t stage = 0;
  std::string name;
  std::int64_t bytes = 0;
  std::string source;
};

struct PlannedGroup {
  std::string kind;
  std::int64_t layers = 0;
  std::int64_t block_size = 0;       ///< tokens
  std::int64_t page_size_bytes = 0;  ///< one block of one layer; all layers of a mixed group
  std::int64_t blocks_per_request = 0;
};

struct PlanReport {
  std::vector<PlannedGroup> groups;
  std::int64_t page_size_bytes = 0;  ///< largest block of a layer
  std::int64_t bytes_per_block = 0;  ///< all layers of the largest stage, one GPU
  double bytes_per_token = 0;        ///< what a token adds in the attention layers of the largest stage, one GPU
  std::int64_t num_blocks = 0;       ///< null block included
  std::int64_t num_tokens = 0;
  double max_concurrency = 0;
  std::int64_t max_model_len = 0;      ///< as asked for
  std::int64_t max_model_len_fit = 0;  ///< longest that fits, up to the model's own or the asked length
  std::int64_t blocks_per_request = 0;
  std::int64_t reserved_blocks = 0;  ///< that never serve a request
  std::int64_t missing_bytes = 0;    ///< KV memory that one request of full length lacks on the tightest GPU
  bool fits = false;
  std::int64_t ledger_bytes = 0;  ///< one GPU of each stage; the sum of all entries
  std::vector<LedgerEntry> ledger;
  std::vector<std::string> warnings;
};

/// Errors: bad_input (the model, naming field and value), invalid_argument (the request), and those of
/// get_kv_cache_groups. A model that does not fit is no error: `fits` is false.
[[nodiscard]] Result<PlanReport> plan_model(const ModelFacts& facts, const PlanRequest& request);

/// What would make a model fit that does not: each suggestion has been planned and found to fit. Sentences for
/// people, the cheapest first; empty when it fits or nothing within 64 GPUs helps.
[[nodiscard]] std::vector<std::string> remedies(const ModelFacts& facts, const PlanRequest& request,
                                                const PlanReport& report);

}  // namespace kvpool::tools
