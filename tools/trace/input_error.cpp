#include "tools/trace/input_error.hpp"

#include <fmt/core.h>

namespace kvpool::tools {
namespace {

std::string position(std::string_view file, std::uint64_t line, std::string_view field) {
  std::string text(file);
  if (line != 0) {
    text += fmt::format(":{}", line);
  }
  if (!field.empty()) {
    text += fmt::format(": {}", field);
  }
  return text;
}

}  // namespace

InputError::InputError(std::string_view file, std::uint64_t line, std::string_view field, std::string_view problem)
    : std::runtime_error(fmt::format("{}: {}", position(file, line, field), problem)) {}

InputError::InputError(std::string_view file, std::uint64_t line, std::string_view field, std::string_view problem,
                       std::string_view value)
    : std::runtime_error(fmt::format("{}: {}, got {}", position(file, line, field), problem, shortened(value))) {}

std::string shortened(std::string_view value) {
  constexpr std::size_t kShown = 60;
  std::string text;
  for (const char c : value.substr(0, kShown)) {
    text.push_back(static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7f ? '?' : c);
  }
  if (value.size() > kShown) {
    text += fmt::format("... ({} characters)", value.size());
  }
  return text;
}

}  // namespace kvpool::tools
