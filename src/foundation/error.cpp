#include "kvpool/foundation/error.hpp"

namespace kvpool {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::invalid_config: return "invalid_config";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::not_enough_blocks: return "not_enough_blocks";
    case ErrorCode::unknown_request: return "unknown_request";
    case ErrorCode::duplicate_request: return "duplicate_request";
    case ErrorCode::unknown_block: return "unknown_block";
    case ErrorCode::double_free: return "double_free";
    case ErrorCode::bad_input: return "bad_input";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::environment: return "environment";
    case ErrorCode::deadline_exceeded: return "deadline_exceeded";
    case ErrorCode::rank_failed: return "rank_failed";
    case ErrorCode::layout_mismatch: return "layout_mismatch";
    case ErrorCode::internal: return "internal";
  }
  return "unknown";
}

}  // namespace kvpool
