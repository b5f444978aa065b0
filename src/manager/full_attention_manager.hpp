// Full attention (also MLA and hidden states): every token is read for ever.
#pragma once

#include "manager/single_type_manager.hpp"

namespace kvpool {

class FullAttentionManager : public SingleTypeManager {
 public:
  using SingleTypeManager::SingleTypeManager;

  [[nodiscard]] bool is_full_attention() const noexcept override { return true; }
  [[nodiscard]] bool supports_fine_lookup() const noexcept override { return true; }

  [[nodiscard]] GroupHits find_longest_cache_hit(const LookupQuery& query) const override;

  /// Full blocks, and the prompt's last whole hash unit when it ends inside a block.
  void cache_blocks(const Request& request, GroupState& state, std::int64_t num_tokens, std::int64_t reached) override;

  [[nodiscard]] std::int64_t num_common_prefix_blocks(GroupState& state) const override;

 private:
  [[nodiscard]] std::size_t find_whole_blocks(const LookupQuery& query, GroupHits& hits) const;
  [[nodiscard]] std::int64_t find_tail(const LookupQuery& query, std::size_t num_whole, GroupHits& hits) const;
};

}  // namespace kvpool
