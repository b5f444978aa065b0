// Expected against actual answers.
#pragma once

#include <optional>
#include <string>

#include "tools/cli/json_output.hpp"

namespace kvpool::tools {

struct Difference {
  std::string field;  ///< path, as in events[3].block_hashes[0]; empty: the answer as a whole
  std::string expected;
  std::string actual;
};

/// First difference; empty when both are equal. The order of keys does not matter, the order of lists does; a missing
/// key and null differ. Numbers of which one is a float are equal within 1e-9.
[[nodiscard]] std::optional<Difference> compare_answers(const Json& expected, const Json& actual);

}  // namespace kvpool::tools
