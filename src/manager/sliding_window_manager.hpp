// Sliding window: a token reads the last `window` tokens, itself included.
#pragma once

#include "manager/single_type_manager.hpp"

namespace kvpool {

class SlidingWindowManager final : public SingleTypeManager {
 public:
  SlidingWindowManager(const GroupContext& context, std::int64_t window, std::int64_t extra_retained_tokens)
      : SingleTypeManager(context), window_(window), extra_retained_tokens_(extra_retained_tokens) {}

  /// From the right: the last run of blocks that fills a window, or one that starts at token 0.
  [[nodiscard]] GroupHits find_longest_cache_hit(const LookupQuery& query) const override;
  [[nodiscard]] std::int64_t skipped_tokens(std::int64_t processed) const noexcept override;

 protected:
  [[nodiscard]] RetentionMask reachable_blocks(std::int64_t begin, std::int64_t end,
                                               std::span<const std::int64_t> boundaries) const override;

 private:
  /// Consecutive blocks that a hit needs.
  [[nodiscard]] std::int64_t blocks_needed(bool drop_last) const noexcept {
    return cdiv(window_ - 1, block_size()) + (drop_last ? 1 : 0);
  }

  std::int64_t window_;                 ///< tokens
  std::int64_t extra_retained_tokens_;  ///< kept beyond the window
};

}  // namespace kvpool
