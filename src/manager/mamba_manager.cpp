#include "manager/mamba_manager.hpp"

#include <algorithm>

#include "manager/joint_lookup.hpp"

namespace kvpool {

MambaManager::MambaManager(const GroupContext& context, std::int64_t num_speculative_blocks)
    : SingleTypeManager(context),
      num_speculative_blocks_(num_speculative_blocks),
      published_this_step_(context.pool->num_blocks()) {}

GroupHits MambaManager::find_longest_cache_hit(const LookupQuery& query) const {
  const std::int64_t size = block_size();
  const bool fine = query.alignment < size && size % query.alignment == 0;
  // States are looked for at the end of every unit: a hash unit, or a block.
  const std::int64_t unit = fine ? query.alignment : size;
  const HashChain chain{query.hashes, static_cast<std::size_t>(unit / context().hash_block_size)};
  const std::int64_t limit = std::min(query.max_length / unit, static_cast<std::int64_t>(chain.size()));
  GroupHits hits;
  hits.lists.resize(query.groups.size());
  std::vector<BlockHandle> found(query.groups.size());
  for (std::int64_t u = limit - 1; u >= 0; --u) {
    const std::int64_t length = (u + 1) * unit;
    if (length % query.alignment != 0) continue;
    if (!find_in_all(pool(), chain[static_cast<std::size_t>(u)], query.groups, found)) continue;
    for (std::size_t g = 0; g < found.size(); ++g) {
      hits.lists[g].resize(static_cast<std::size_t>(u * unit / size));
      hits.lists[g].push_back(found[g]);
    }
    hits.length = length;
    break;
  }
  return hits;
}

bool MambaManager::published_this_step(const BlockHandle& hit) const {
  if (hit.is_null()) return false;
  const std::optional<BlockKey> key = pool().primary_key(hit.id);
  return key && published_this_step_.contains(*key);
}

void MambaManager::note_published(BlockId block) {
  if (const std::optional<BlockKey> key = pool().primary_key(block)) published_this_step_.insert(*key);
}

BlockNeed MambaManager::blocks_to_allocate(const GroupState& state, const SlotDemand& demand,
                                           std::span<const BlockHandle> hits) const {
  if (!hits.empty() && published_this_step(hits.back())) return {std::int64_t{pool().num_blocks()} + 1, 0};
  SlotDemand with_speculation = demand;
  with_speculation.tokens += block_size() * num_speculative_blocks_;
  return SingleTypeManager::blocks_to_allocate(state, with_speculation, hits);
}

std::vector<BlockId> MambaManager::allocate_new_blocks(GroupState& state, const SlotDemand& demand,
                                                       Reservation& reservation) {
  SlotDemand with_speculation = demand;
  with_speculation.tokens += block_size() * num_speculative_blocks_;
  return SingleTypeManager::allocate_new_blocks(state, with_speculation, reservation);
}

void MambaManager::cache_blocks(const Request& request, GroupState& state, std::int64_t num_tokens,
                                std::int64_t reached) {
  const std::int64_t before = std::max<std::int64_t>(state.num_cached, 0);
  SingleTypeManager::cache_blocks(request, state, num_tokens, reached);
  for (std::int64_t i = before; i < state.num_cached; ++i) {
    const BlockId block = state.table[static_cast<std::size_t>(i)];
    if (block != kNullBlock) note_published(block);
  }
}

// One state is enough for a hit, so an interval keeps the last block of each.
RetentionMask MambaManager::reachable_blocks(std::int64_t begin, std::int64_t end,
                                             std::span<const std::int64_t> boundaries) const {
  const std::optional<std::int64_t>& interval = context().retention_interval;
  if (!interval) return RetentionMask::everything();
  RetentionMask mask = RetentionMask::nothing_of(begin, end);
  if (*interval > 0) {
    const std::int64_t period = *interval / block_size();
    if (period <= 1) return RetentionMask::everything();
    for (std::int64_t i = begin; i < end; ++i) {
      if ((i + 1) % period == 0) mask.keep(i);
    }
  }
  const std::int64_t alignment = context().scheduler_block_size;
  for (const std::int64_t boundary : boundaries) mask.keep(boundary / alignment * alignment / block_size() - 1);
  return mask;
}

}  // namespace kvpool
