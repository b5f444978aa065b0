// The plan as people and programs read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/json_output.hpp"
#include "tools/plan/planner.hpp"

namespace kvpool::tools {

/// "80.00 GiB"; exact bytes below 1 KiB.
[[nodiscard]] std::string bytes_text(std::int64_t bytes);

/// A table with groups, numbers and ledger.
[[nodiscard]] std::string plan_text(const PlanReport& report, const std::vector<std::string>& suggestions);

/// Keys: groups, page_size_bytes, bytes_per_token, num_blocks, num_tokens, max_concurrency, max_model_len_fit, ledger.
[[nodiscard]] Json plan_json(const PlanReport& report, const std::vector<std::string>& suggestions);

}  // namespace kvpool::tools
