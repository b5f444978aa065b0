// Typed access to the fields of a JSON object, with errors that name field and value.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/json_output.hpp"

namespace kvpool::tools {

/// Reads one object of a configuration. Every getter takes the names under which a fact is known; a field that is
/// absent or null is empty. Two names of one fact with different values contradict each other.
/// All getters throw InputError.
class ConfigFields {
 public:
  /// `prefix` names the object in messages ("text_config.").
  ConfigFields(std::string file, const Json& object, std::string prefix);

  /// Integers from `least` up to 2^30; whole numbers written as 4096.0 count as integers.
  [[nodiscard]] std::optional<std::int64_t> integer(std::initializer_list<const char*> names,
                                                    std::int64_t least = 1) const;
  [[nodiscard]] std::optional<double> number(std::initializer_list<const char*> names) const;
  [[nodiscard]] std::optional<bool> boolean(std::initializer_list<const char*> names) const;
  [[nodiscard]] std::string text(std::initializer_list<const char*> names) const;
  [[nodiscard]] std::vector<std::string> texts(const char* name) const;
  [[nodiscard]] std::vector<std::int64_t> integers(const char* name) const;

  /// The object under `name`, null when absent. Throws when it is something else.
  [[nodiscard]] const Json* object(const char* name) const;
  [[nodiscard]] bool has(const char* name) const;
  [[nodiscard]] const Json& json() const noexcept { return *object_; }

  /// Facts that stood under another name than the first of those asked for: first name, name in the file.
  [[nodiscard]] const std::map<std::string, std::string>& other_names() const noexcept { return other_names_; }

  [[noreturn]] void refuse(std::string_view name, std::string_view problem) const;

 private:
  [[nodiscard]] const Json* find(const char* name) const;
  [[nodiscard]] const Json* find_one(std::initializer_list<const char*> names, const char*& found) const;

  std::string file_;
  const Json* object_;
  std::string prefix_;
  mutable std::map<std::string, std::string> other_names_;
};

/// Throws InputError for a field of `object` that is not known but looks like a misspelt one that matters.
void refuse_misspelt_fields(const std::string& file, const Json& object, const std::string& prefix);

}  // namespace kvpool::tools
