#include "tools/cli/json_output.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace kvpool::tools {

std::string to_text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

void print_json(const Json& value) {
  fmt::print("{}\n", to_text(value));
  std::fflush(stdout);
}

double ratio(double numerator, double denominator) {
  if (denominator == 0) {
    return 0.0;
  }
  return std::strtod(fmt::format("{:.6f}", numerator / denominator).c_str(), nullptr);
}

}  // namespace kvpool::tools
