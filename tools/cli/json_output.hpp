// JSON as the programs write it: members in the order in which they were added.
#pragma once

#include <nlohmann/json.hpp>

namespace kvpool::tools {

using Json = nlohmann::ordered_json;

/// One line on stdout, flushed. Texts that are no UTF-8 (file names) are written with replacement characters.
void print_json(const Json& value);

/// The text that print_json writes.
[[nodiscard]] std::string to_text(const Json& value);

/// `value` rounded to six decimals, as ratios are reported; 0 for 0/0.
[[nodiscard]] double ratio(double numerator, double denominator);

}  // namespace kvpool::tools
