// The end of `kvpool launch`: a table for people or one JSON object.
#pragma once

#include <string>

#include "tools/cli/json_output.hpp"
#include "tools/launch/launch_options.hpp"
#include "tools/launch/rank_main.hpp"

namespace kvpool::launch {

[[nodiscard]] tools::Json to_json(const LaunchOptions& options, const LaunchReport& report);
[[nodiscard]] std::string to_table(const LaunchOptions& options, const LaunchReport& report);

/// What the report alone says: 1 for a failed verification or an alarm, 2 for refused requests, 130 for an
/// interrupted run, else 0.
[[nodiscard]] int exit_status_of(const LaunchReport& report);

/// `80.0 GiB`
[[nodiscard]] std::string human_bytes(std::int64_t bytes);

}  // namespace kvpool::launch
