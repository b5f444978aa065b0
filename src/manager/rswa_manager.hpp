// Full attention over the prompt, a window over what was generated since.
#pragma once

#include "manager/full_attention_manager.hpp"

namespace kvpool {

class RswaManager final : public FullAttentionManager {
 public:
  RswaManager(const GroupContext& context, std::int64_t window) : FullAttentionManager(context), window_(window) {}

 protected:
  [[nodiscard]] Range leaving_range(const GroupState& state, std::int64_t processed,
                                    std::int64_t num_prompt_tokens) const override;

 private:
  std::int64_t window_;  ///< tokens
};

}  // namespace kvpool
