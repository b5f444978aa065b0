#include "tools/exec/fields.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "tools/trace/input_error.hpp"

namespace kvpool::tools {

Fields::Fields(const Json& object, ScriptPosition position, std::string prefix)
    : object_(object), position_(position), prefix_(std::move(prefix)) {
  if (!object_.is_object()) {
    throw InputError(position_.file, position_.line, prefix_, "is not a JSON object", to_text(object_));
  }
}

void Fields::refuse(std::string_view name, std::string_view problem, const Json& value) const {
  throw InputError(position_.file, position_.line, prefix_ + std::string(name), problem, to_text(value));
}

void Fields::refuse(std::string_view name, std::string_view problem) const {
  throw InputError(position_.file, position_.line, prefix_ + std::string(name), problem);
}

bool Fields::has(std::string_view name) {
  known_.push_back(name);
  return object_.contains(name);
}

bool Fields::has_value(std::string_view name) { return has(name) && !object_.find(name)->is_null(); }

const Json& Fields::member(std::string_view name) {
  if (!has(name)) {
    refuse(name, "is missing");
  }
  return *object_.find(name);
}

std::int64_t Fields::to_integer(std::string_view name, const Json& value, std::int64_t low, std::int64_t high) const {
  if (!value.is_number_integer()) {
    refuse(name, "is not an integer", value);
  }
  // Unsigned numbers beyond the signed range would come out negative.
  const bool too_big = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (too_big || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high) {
    refuse(name, fmt::format("is outside {}..{}", low, high), value);
  }
  return value.get<std::int64_t>();
}

std::int64_t Fields::integer(std::string_view name, std::int64_t low, std::int64_t high) {
  return to_integer(name, member(name), low, high);
}

std::int64_t Fields::integer_or(std::string_view name, std::int64_t fallback, std::int64_t low, std::int64_t high) {
  return has(name) ? to_integer(name, *object_.find(name), low, high) : fallback;
}

bool Fields::boolean(std::string_view name) {
  const Json& value = member(name);
  if (!value.is_boolean()) {
    refuse(name, "is neither true nor false", value);
  }
  return value.get<bool>();
}

bool Fields::boolean_or(std::string_view name, bool fallback) { return has(name) ? boolean(name) : fallback; }

double Fields::number_or(std::string_view name, double fallback) {
  if (!has(name)) {
    return fallback;
  }
  const Json& value = *object_.find(name);
  if (!value.is_number()) {
    refuse(name, "is not a number", value);
  }
  return value.get<double>();
}

const std::string& Fields::text(std::string_view name) {
  const Json& value = member(name);
  if (!value.is_string()) {
    refuse(name, "is not a text", value);
  }
  return value.get_ref<const std::string&>();
}

std::optional<std::string> Fields::optional_text(std::string_view name) {
  return has(name) ? std::optional(text(name)) : std::nullopt;
}

const Json& Fields::list(std::string_view name) {
  const Json& value = member(name);
  if (!value.is_array()) {
    refuse(name, "is not a list", value);
  }
  return value;
}

std::vector<std::int64_t> Fields::integers(std::string_view name) {
  std::vector<std::int64_t> numbers;
  for (const Json& item : list(name)) {
    numbers.push_back(to_integer(name, item, -kMaxScriptNumber, kMaxScriptNumber));
  }
  return numbers;
}

void Fields::finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      refuse(shortened(key), "is an unknown key", value);
    }
  }
}

}  // namespace kvpool::tools
