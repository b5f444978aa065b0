#include "tools/cli/exit_status.hpp"

#include <fmt/core.h>

#include <cstdio>

namespace kvpool::tools {

int exit_status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::out_of_memory:
    case ErrorCode::environment:
    case ErrorCode::deadline_exceeded:
    case ErrorCode::rank_failed: return kExitEnvironment;
    case ErrorCode::layout_mismatch:
    case ErrorCode::internal: return kExitCheckFailed;
    case ErrorCode::invalid_argument:
    case ErrorCode::invalid_config:
    case ErrorCode::unsupported:
    case ErrorCode::not_enough_blocks:
    case ErrorCode::unknown_request:
    case ErrorCode::duplicate_request:
    case ErrorCode::unknown_block:
    case ErrorCode::double_free:
    case ErrorCode::bad_input: break;
  }
  return kExitBadInput;
}

int fail(const std::string& subcommand, const std::string& message, int status) {
  fmt::print(stderr, "kvpool{}{}: {}\n", subcommand.empty() ? "" : " ", subcommand, message);
  return status;
}

}  // namespace kvpool::tools
