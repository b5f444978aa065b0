// Repeats an operation log on a pool and compares result and complete state after every operation.
#pragma once

#include <cstdint>
#include <string>

#include "tools/trace/line_reader.hpp"

namespace kvpool::tools {

struct OpsReplayResult {
  std::uint64_t operations = 0;  ///< compared and equal, or the one that differed
  std::uint64_t mismatches = 0;  ///< 0 or 1: it stops at the first one
  bool interrupted = false;
  std::string message;  ///< `FILE:LINE: result|queue: expected X, got Y`
};

/// `lines` has just answered `first_line`, the log's header. Throws InputError for a log that cannot be read or that
/// names requests that are not there.
[[nodiscard]] OpsReplayResult replay_ops_log(LineReader& lines, std::string_view first_line);

}  // namespace kvpool::tools
