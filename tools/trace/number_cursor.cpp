#include "tools/trace/number_cursor.hpp"

#include <fmt/core.h>

#include <charconv>
#include <system_error>

#include "tools/trace/input_error.hpp"

namespace kvpool::tools {

std::string_view NumberCursor::word(std::string_view field) {
  if (!more_) {
    throw InputError(file_, line_, field, "is missing: the line ends before it");
  }
  const std::size_t end = rest_.find(' ');
  const std::string_view result = rest_.substr(0, end);
  more_ = end != std::string_view::npos;
  rest_ = more_ ? rest_.substr(end + 1) : std::string_view{};
  return result;
}

std::int64_t NumberCursor::next(std::string_view field, std::int64_t low, std::int64_t high) {
  const std::string_view text = word(field);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = !text.empty() && end == text.data() + text.size() &&
                         (error == std::errc() || error == std::errc::result_out_of_range);
  if (!is_number) {
    throw InputError(file_, line_, field, "is not an integer", text.empty() ? std::string_view("nothing") : text);
  }
  if (error != std::errc() || value < low || value > high) {
    throw InputError(file_, line_, field, fmt::format("is outside {}..{}", low, high), text);
  }
  return value;
}

void NumberCursor::finish() const {
  if (more_) {
    throw InputError(file_, line_, "", "the line goes on after its last field",
                     rest_.empty() ? std::string_view("a space") : rest_);
  }
}

}  // namespace kvpool::tools
