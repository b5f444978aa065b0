#include "tools/trace/json_line.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "tools/trace/input_error.hpp"

namespace kvpool::tools {
namespace {

constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxKeys = 64;

// Watches the parser: the library itself keeps the last of two equal keys without a word.
class StructureCheck {
 public:
  StructureCheck(std::string_view file, std::uint64_t number) : file_(file), number_(number) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxDepth) {
      throw InputError(file_, number_, "", fmt::format("nested deeper than {}", kMaxDepth));
    }
    if (event == Json::parse_event_t::object_start) {
      open_objects_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_objects_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      auto& keys = open_objects_.back();
      const auto& key = parsed.get_ref<const std::string&>();
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) {
        throw InputError(file_, number_, shortened(key), "appears twice in one object");
      }
      if (keys.size() == kMaxKeys) {
        throw InputError(file_, number_, shortened(key), fmt::format("object with more than {} keys", kMaxKeys));
      }
      keys.push_back(key);
    }
    return true;
  }

 private:
  std::string_view file_;
  std::uint64_t number_;
  std::vector<std::vector<std::string>> open_objects_;
};

}  // namespace

Json parse_json_line(std::string_view file, std::uint64_t number, std::string_view line) {
  StructureCheck check(file, number);
  try {
    return Json::parse(line.begin(), line.end(), [&check](int depth, Json::parse_event_t event, const Json& parsed) {
      return check(depth, event, parsed);
    });
  } catch (const Json::parse_error& error) {
    throw InputError(file, number, fmt::format("column {}", error.byte), "not valid JSON", line);
  } catch (const Json::exception& error) {
    throw InputError(file, number, "", fmt::format("not acceptable JSON ({})", error.what()));
  }
}

}  // namespace kvpool::tools
