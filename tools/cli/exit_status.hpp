// What the exit status of every program of kvpool means.
#pragma once

#include <string>

#include "kvpool/foundation/error.hpp"

namespace kvpool::tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitCheckFailed = 1;  ///< the thing that was checked failed
inline constexpr int kExitBadInput = 2;     ///< bad usage or bad input
inline constexpr int kExitEnvironment = 3;  ///< no device, a rank died, a deadline passed, no memory
inline constexpr int kExitInterrupted = 130;

/// The status that a program ends with because of an error of this kind.
[[nodiscard]] int exit_status_of(ErrorCode code) noexcept;

/// Writes `kvpool SUBCOMMAND: MESSAGE` (or `kvpool: MESSAGE` without a subcommand) to stderr and answers `status`.
int fail(const std::string& subcommand, const std::string& message, int status);

}  // namespace kvpool::tools
