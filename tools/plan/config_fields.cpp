#include "tools/plan/config_fields.hpp"

#include <cmath>
#include <utility>

#include "tools/trace/input_error.hpp"

namespace kvpool::tools {
namespace {

// Far above every real model, and products of two still fit in 63 bits.
constexpr std::int64_t kLargestInteger = std::int64_t{1} << 30;
constexpr std::size_t kMostEntries = 4096;

bool is_whole(const Json& value) {
  if (value.is_number_integer()) return true;
  if (!value.is_number_float()) return false;
  const double number = value.get<double>();
  return std::isfinite(number) && std::floor(number) == number &&
         std::abs(number) <= static_cast<double>(kLargestInteger);
}

std::int64_t whole(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return number > static_cast<std::uint64_t>(kLargestInteger) ? kLargestInteger + 1
                                                                : static_cast<std::int64_t>(number);
  }
  return value.is_number_integer() ? value.get<std::int64_t>() : static_cast<std::int64_t>(value.get<double>());
}

}  // namespace

ConfigFields::ConfigFields(std::string file, const Json& object, std::string prefix)
    : file_(std::move(file)), object_(&object), prefix_(std::move(prefix)) {}

void ConfigFields::refuse(std::string_view name, std::string_view problem) const {
  const auto found = object_->find(std::string(name));
  const std::string value = found == object_->end() ? "nothing" : to_text(*found);
  throw InputError(file_, 0, prefix_ + std::string(name), problem, value);
}

const Json* ConfigFields::find(const char* name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigFields::has(const char* name) const { return find(name) != nullptr; }

const Json* ConfigFields::find_one(std::initializer_list<const char*> names, const char*& found) const {
  const Json* result = nullptr;
  for (const char* name : names) {
    const Json* value = find(name);
    if (value == nullptr) continue;
    if (result != nullptr && *result != *value) {
      refuse(name, "contradicts " + std::string(found) + " " + to_text(*result));
    }
    if (result == nullptr) found = name;
    result = value;
  }
  if (result != nullptr && found != *names.begin()) other_names_[*names.begin()] = found;
  return result;
}

std::optional<std::int64_t> ConfigFields::integer(std::initializer_list<const char*> names, std::int64_t least) const {
  const char* name = nullptr;
  const Json* value = find_one(names, name);
  if (value == nullptr) return std::nullopt;
  if (!is_whole(*value)) refuse(name, "expected an integer");
  const std::int64_t number = whole(*value);
  if (number < least) refuse(name, "expected at least " + std::to_string(least));
  if (number > kLargestInteger) refuse(name, "expected at most 2^30");
  return number;
}

std::optional<double> ConfigFields::number(std::initializer_list<const char*> names) const {
  const char* name = nullptr;
  const Json* value = find_one(names, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>())) refuse(name, "expected a number");
  return value->get<double>();
}

std::optional<bool> ConfigFields::boolean(std::initializer_list<const char*> names) const {
  const char* name = nullptr;
  const Json* value = find_one(names, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(name, "expected true or false");
  return value->get<bool>();
}

std::string ConfigFields::text(std::initializer_list<const char*> names) const {
  const char* name = nullptr;
  const Json* value = find_one(names, name);
  if (value == nullptr) return {};
  if (!value->is_string()) refuse(name, "expected a text");
  return value->get<std::string>();
}

std::vector<std::string> ConfigFields::texts(const char* name) const {
  std::vector<std::string> result;
  const Json* value = find(name);
  if (value == nullptr) return result;
  if (!value->is_array() || value->size() > kMostEntries) refuse(name, "expected a list of at most 4096 texts");
  for (const Json& entry : *value) {
    if (!entry.is_string()) refuse(name, "expected a list of texts");
    result.push_back(entry.get<std::string>());
  }
  return result;
}

std::vector<std::int64_t> ConfigFields::integers(const char* name) const {
  std::vector<std::int64_t> result;
  const Json* value = find(name);
  if (value == nullptr) return result;
  if (!value->is_array() || value->size() > kMostEntries) refuse(name, "expected a list of at most 4096 integers");
  for (const Json& entry : *value) {
    if (!is_whole(entry) || whole(entry) < 0 || whole(entry) > kLargestInteger) {
      refuse(name, "expected a list of integers from 0");
    }
    result.push_back(whole(entry));
  }
  return result;
}

const Json* ConfigFields::object(const char* name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object()) refuse(name, "expected an object");
  return value;
}

}  // namespace kvpool::tools
