// What every reader throws for input that it cannot accept.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kvpool::tools {

/// `FILE:LINE: FIELD: what is wrong, got VALUE`. Line 0 and an empty field are left out. Programs end with
/// kExitBadInput.
class InputError : public std::runtime_error {
 public:
  InputError(std::string_view file, std::uint64_t line, std::string_view field, std::string_view problem);
  /// With the offending value, shortened to a readable length.
  InputError(std::string_view file, std::uint64_t line, std::string_view field, std::string_view problem,
             std::string_view value);
};

/// At most 60 characters of `value`, control characters replaced.
[[nodiscard]] std::string shortened(std::string_view value);

}  // namespace kvpool::tools
