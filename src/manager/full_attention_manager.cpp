#include "manager/full_attention_manager.hpp"

#include <algorithm>

#include "manager/block_publisher.hpp"
#include "manager/joint_lookup.hpp"

namespace kvpool {

// In steps of limited size, so that a miss early in a long prompt does not pay for its whole length.
std::size_t FullAttentionManager::find_whole_blocks(const LookupQuery& query, GroupHits& hits) const {
  constexpr std::size_t kStep = 256;
  const auto stride = static_cast<std::size_t>(context().units_per_block());
  std::size_t limit = std::min(static_cast<std::size_t>(query.max_length / block_size()), query.hashes.size() / stride);
  for (std::size_t g = 0; g < query.groups.size(); ++g) {
    std::vector<BlockHandle>& list = hits.lists[g];
    std::size_t found = 0;
    while (found < limit) {
      const std::size_t step = std::min(kStep, limit - found);
      list.resize(found + step);
      const HashChain chain{query.hashes.subspan(found * stride), stride};
      const std::size_t more = pool().find_prefix(chain, query.groups[g], std::span(list).subspan(found, step));
      found += more;
      if (more < step) break;
    }
    limit = std::min(limit, found);
  }
  for (std::vector<BlockHandle>& list : hits.lists) list.resize(limit);
  return limit;
}

// Behind the last whole block: the longest part of the next block that is registered.
std::int64_t FullAttentionManager::find_tail(const LookupQuery& query, std::size_t num_whole, GroupHits& hits) const {
  const std::int64_t unit = query.alignment;
  const std::int64_t units = block_size() / unit;
  const std::int64_t first = static_cast<std::int64_t>(num_whole) * units;
  const std::int64_t end =
      std::min({first + units - 1, query.max_length / unit, static_cast<std::int64_t>(query.hashes.size())});
  std::vector<BlockHandle> found(query.groups.size());
  for (std::int64_t u = end - 1; u >= first; --u) {
    if (!find_in_all(pool(), query.hashes[static_cast<std::size_t>(u)], query.groups, found)) continue;
    for (std::size_t g = 0; g < found.size(); ++g) hits.lists[g].push_back(found[g]);
    return (u + 1) * unit;
  }
  return first * unit;
}

GroupHits FullAttentionManager::find_longest_cache_hit(const LookupQuery& query) const {
  GroupHits hits;
  hits.lists.resize(query.groups.size());
  const std::size_t num_whole = find_whole_blocks(query, hits);
  const bool fine = query.alignment < block_size() && block_size() % query.alignment == 0;
  hits.length = fine ? find_tail(query, num_whole, hits) : static_cast<std::int64_t>(num_whole) * block_size();
  if (query.drop_last && hits.length > 0) hits.length -= std::min(query.alignment, block_size());
  hits.length -= hits.length % query.alignment;
  for (std::vector<BlockHandle>& list : hits.lists) {
    list.resize(static_cast<std::size_t>(cdiv(hits.length, block_size())));
  }
  return hits;
}

void FullAttentionManager::cache_blocks(const Request& request, GroupState& state, std::int64_t num_tokens,
                                        std::int64_t reached) {
  SingleTypeManager::cache_blocks(request, state, num_tokens, reached);
  if (context().units_per_block() == 1) return;
  const std::int64_t boundary = request.num_prompt_tokens() / context().hash_block_size * context().hash_block_size;
  if (boundary == 0 || boundary > num_tokens || boundary % block_size() == 0) return;
  const std::int64_t index = boundary / block_size();
  if (index >= state.length()) return;
  BlockPublisher(context()).cache_partial_block(request, state.table[static_cast<std::size_t>(index)], boundary);
}

// Steps that only decode ask again and again for the same answer, so the last run is gone on with as long as it holds.
std::int64_t FullAttentionManager::num_common_prefix_blocks(GroupState& state) const {
  if (state.table.empty()) return 0;
  const std::optional<std::uint64_t> changes = pool().sharing_changes();  // before the references are read
  const std::uint32_t refs = pool().ref_count(state.table.front());
  if (static_cast<std::int64_t>(refs) != num_tables()) return 0;
  const bool holds = state.shared_run && changes == state.shared_run->changes && refs == state.shared_run->refs;
  const auto differs = [this, refs](BlockId block) { return pool().ref_count(block) != refs; };
  const auto first = state.table.begin() + (holds ? state.shared_run->length : 0);
  const std::int64_t length = std::find_if(first, state.table.end(), differs) - state.table.begin();
  if (changes) state.shared_run = SharedRun{*changes, refs, length};
  return length;
}

}  // namespace kvpool
