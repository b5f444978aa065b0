// Members of a JSON object of an op script, read strictly: wrong types and unknown keys are errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/json_output.hpp"

namespace kvpool::tools {

/// Where a line comes from.
struct ScriptPosition {
  std::string_view file;
  std::uint64_t line = 0;
};

/// Every count, length and position of a script is at most this; sums of a few of them cannot overflow.
inline constexpr std::int64_t kMaxScriptNumber = std::int64_t{1} << 53;

/// Each getter notes that its key is known; finish() then refuses all others. Everything thrown is an InputError with
/// file, line, field and value. The object must outlive the reader.
class Fields {
 public:
  Fields(const Json& object, ScriptPosition position, std::string prefix = {});

  [[nodiscard]] const ScriptPosition& position() const noexcept { return position_; }

  [[nodiscard]] bool has(std::string_view name);
  /// Present and not null.
  [[nodiscard]] bool has_value(std::string_view name);
  /// The member as it is; it must be there.
  [[nodiscard]] const Json& member(std::string_view name);

  /// An integer in [low, high].
  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t low = -kMaxScriptNumber,
                                     std::int64_t high = kMaxScriptNumber);
  [[nodiscard]] std::int64_t integer_or(std::string_view name, std::int64_t fallback,
                                        std::int64_t low = -kMaxScriptNumber, std::int64_t high = kMaxScriptNumber);
  [[nodiscard]] bool boolean(std::string_view name);
  [[nodiscard]] bool boolean_or(std::string_view name, bool fallback);
  [[nodiscard]] double number_or(std::string_view name, double fallback);
  [[nodiscard]] const std::string& text(std::string_view name);
  [[nodiscard]] std::optional<std::string> optional_text(std::string_view name);
  [[nodiscard]] const Json& list(std::string_view name);
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view name);

  /// Throws when the object has a key that no getter asked for.
  void finish() const;

  /// Throws: FIELD: PROBLEM, got VALUE.
  [[noreturn]] void refuse(std::string_view name, std::string_view problem, const Json& value) const;
  [[noreturn]] void refuse(std::string_view name, std::string_view problem) const;

 private:
  [[nodiscard]] std::int64_t to_integer(std::string_view name, const Json& value, std::int64_t low,
                                        std::int64_t high) const;

  const Json& object_;
  ScriptPosition position_;
  std::string prefix_;  ///< in front of field names in messages
  std::vector<std::string_view> known_;
};

}  // namespace kvpool::tools
