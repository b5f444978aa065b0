#include "manager/chunked_local_attention_manager.hpp"

#include <algorithm>

#include "manager/joint_lookup.hpp"

namespace kvpool {

GroupHits ChunkedLocalAttentionManager::find_longest_cache_hit(const LookupQuery& query) const {
  const HashChain chain{query.hashes, static_cast<std::size_t>(context().units_per_block())};
  const std::int64_t size = block_size();
  std::int64_t max_length = query.max_length;
  GroupHits hits;
  std::vector<BlockHandle> found(query.groups.size());
  for (;;) {
    const std::int64_t chunk_start = std::max<std::int64_t>(max_length, 0) / chunk_ * chunk_;
    std::int64_t length = chunk_start / size;
    hits.lists.assign(query.groups.size(), std::vector<BlockHandle>(static_cast<std::size_t>(length)));
    const std::int64_t limit = std::min(max_length / size, static_cast<std::int64_t>(chain.size()));
    while (length < limit && find_in_all(pool(), chain[static_cast<std::size_t>(length)], query.groups, found)) {
      for (std::size_t g = 0; g < found.size(); ++g) hits.lists[g].push_back(found[g]);
      ++length;
    }
    hits.length = length * size;
    if (hits.length % query.alignment == 0) return hits;
    max_length = hits.length / query.alignment * query.alignment;  // may lie in an earlier chunk: search anew
  }
}

std::int64_t ChunkedLocalAttentionManager::skipped_tokens(std::int64_t processed) const noexcept {
  return processed / chunk_ * chunk_;
}

}  // namespace kvpool
