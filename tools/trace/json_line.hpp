// One JSON value per line, read strictly.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/cli/json_output.hpp"

namespace kvpool::tools {

/// Parses `line` as one JSON value. Throws InputError (with the column) for bad JSON or bad UTF-8, for an object
/// that names a key twice, for more than 64 keys in an object and for nesting deeper than 16.
[[nodiscard]] Json parse_json_line(std::string_view file, std::uint64_t number, std::string_view line);

}  // namespace kvpool::tools
