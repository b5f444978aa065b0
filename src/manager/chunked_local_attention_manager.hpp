// Chunked local attention: a token reads its own chunk only.
#pragma once

#include "manager/single_type_manager.hpp"

namespace kvpool {

class ChunkedLocalAttentionManager final : public SingleTypeManager {
 public:
  ChunkedLocalAttentionManager(const GroupContext& context, std::int64_t chunk)
      : SingleTypeManager(context), chunk_(chunk) {}

  /// Whole chunks before the last one need nothing from the cache; in the last one, a prefix of blocks.
  [[nodiscard]] GroupHits find_longest_cache_hit(const LookupQuery& query) const override;
  [[nodiscard]] std::int64_t skipped_tokens(std::int64_t processed) const noexcept override;

 private:
  std::int64_t chunk_;  ///< tokens
};

}  // namespace kvpool
