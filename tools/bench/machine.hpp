// What the figures were measured on.
#pragma once

#include <optional>
#include <string>

#include "tools/cli/json_output.hpp"

namespace kvpool::tools {

/// Processor, number of logical processors, kernel, compiler, command line, date.
[[nodiscard]] Json machine_json();

/// Why this build must not print figures; empty when it may.
[[nodiscard]] std::optional<std::string> unfit_build();

}  // namespace kvpool::tools
