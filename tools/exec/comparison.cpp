#include "tools/exec/comparison.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace kvpool::tools {
namespace {

constexpr double kTolerance = 1e-9;
constexpr const char* kNothing = "nothing";

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 2000;
  std::string text = to_text(value);
  if (text.size() > kLongest) {
    text.resize(kLongest);
    text += "...";
  }
  return text;
}

bool same_number(const Json& a, const Json& b) {
  if (a.is_number_float() || b.is_number_float()) {
    return std::abs(a.get<double>() - b.get<double>()) <= kTolerance;
  }
  // A negative number is never equal to one that needs the unsigned type, whatever their bits are.
  const bool a_negative = !a.is_number_unsigned() && a.get<std::int64_t>() < 0;
  const bool b_negative = !b.is_number_unsigned() && b.get<std::int64_t>() < 0;
  return a_negative == b_negative && a.get<std::uint64_t>() == b.get<std::uint64_t>();
}

class Comparer {
 public:
  std::optional<Difference> compare(const Json& expected, const Json& actual, const std::string& path) const {
    if (expected.is_object() && actual.is_object()) {
      return compare_objects(expected, actual, path);
    }
    if (expected.is_array() && actual.is_array()) {
      return compare_lists(expected, actual, path);
    }
    const bool same = expected.is_number() && actual.is_number() ? same_number(expected, actual) : expected == actual;
    return same ? std::nullopt : std::optional(Difference{path, shown(expected), shown(actual)});
  }

 private:
  std::optional<Difference> compare_objects(const Json& expected, const Json& actual, const std::string& path) const {
    const std::string dot = path.empty() ? "" : ".";
    for (const auto& [key, value] : expected.items()) {
      const auto found = actual.find(key);
      if (found == actual.end()) {
        // An unexpected refusal says more than the first member that is missing because of it.
        const bool refused = path.empty() && actual.contains("error");
        return refused ? Difference{key, shown(value), "error " + shown(actual["error"])}
                       : Difference{path + dot + key, shown(value), kNothing};
      }
      if (auto difference = compare(value, *found, path + dot + key)) {
        return difference;
      }
    }
    for (const auto& [key, value] : actual.items()) {
      if (!expected.contains(key)) {
        return Difference{path + dot + key, kNothing, shown(value)};
      }
    }
    return std::nullopt;
  }

  std::optional<Difference> compare_lists(const Json& expected, const Json& actual, const std::string& path) const {
    // Short lists are easier to read whole.
    constexpr std::size_t kReadable = 64;
    const bool whole = expected.size() <= kReadable && actual.size() <= kReadable &&
                       std::all_of(expected.begin(), expected.end(), [](const Json& item) { return item.is_number(); });
    for (std::size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
      if (auto difference = compare(expected[i], actual[i], fmt::format("{}[{}]", path, i))) {
        return whole ? Difference{path, shown(expected), shown(actual)} : std::move(difference);
      }
    }
    if (expected.size() == actual.size()) {
      return std::nullopt;
    }
    if (whole) {
      return Difference{path, shown(expected), shown(actual)};
    }
    const std::size_t first = std::min(expected.size(), actual.size());
    return Difference{fmt::format("{}[{}]", path, first), first < expected.size() ? shown(expected[first]) : kNothing,
                      first < actual.size() ? shown(actual[first]) : kNothing};
  }
};

}  // namespace

std::optional<Difference> compare_answers(const Json& expected, const Json& actual) {
  return Comparer{}.compare(expected, actual, "");
}

}  // namespace kvpool::tools
