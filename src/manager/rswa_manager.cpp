#include "manager/rswa_manager.hpp"

#include <algorithm>

namespace kvpool {

// Blocks that hold only generated tokens and lie in front of the window; the prompt stays.
SingleTypeManager::Range RswaManager::leaving_range(const GroupState& state, std::int64_t processed,
                                                    std::int64_t num_prompt_tokens) const {
  if (num_prompt_tokens <= 0) return {};
  const std::int64_t window_start = std::max(num_prompt_tokens, processed - window_);
  return {cdiv(num_prompt_tokens, block_size()), std::min(window_start / block_size(), state.length())};
}

}  // namespace kvpool
