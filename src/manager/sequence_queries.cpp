// KVCacheManager: what a sequence holds.
#include <algorithm>
#include <utility>

#include "kvpool/manager/residency_metrics.hpp"
#include "manager/manager_impl.hpp"

namespace kvpool {

std::vector<std::vector<BlockId>> KVCacheManager::get_block_ids(const Sequence& sequence) const {
  std::vector<std::vector<BlockId>> ids;
  for (const GroupState& group : sequence.state_->groups) ids.push_back(group.table);
  return ids;
}

std::span<const BlockId> KVCacheManager::block_table(const Sequence& sequence, GroupId group) const {
  return sequence.state_->groups[group.value()].table;
}

std::vector<std::vector<BlockId>> KVCacheManager::get_block_ids_for_computed_tokens(const Sequence& sequence,
                                                                                    std::int64_t num_tokens) const {
  std::vector<std::vector<BlockId>> ids = get_block_ids(sequence);
  for (std::size_t g = 0; g < ids.size(); ++g) {
    const SingleTypeManager& manager = impl_->coordinator->manager(g);
    if (manager.is_state() || manager.holds_encoder_tokens()) continue;
    const auto needed = static_cast<std::size_t>(std::max<std::int64_t>(0, cdiv(num_tokens, manager.block_size())));
    if (needed < ids[g].size()) ids[g].resize(needed);
  }
  return ids;
}

std::int64_t KVCacheManager::estimate_cached_tokens(const Sequence& sequence) const {
  std::optional<std::int64_t> shortest;
  for (std::size_t g = 0; g < impl_->coordinator->num_groups(); ++g) {
    if (impl_->coordinator->manager(g).holds_encoder_tokens()) continue;
    std::int64_t covered = 0;
    for (const BlockId block : sequence.state_->groups[g].table) {
      if (block != kNullBlock) covered = std::max(covered, impl_->pool.covered_tokens(block));
    }
    shortest = std::min(shortest.value_or(covered), covered);
  }
  return shortest.value_or(0);
}

std::vector<std::int64_t> KVCacheManager::get_num_common_prefix_blocks(const Sequence& sequence) const {
  std::vector<std::int64_t> counts(impl_->coordinator->num_groups(), 0);
  const ExclusiveUse use(*sequence.state_, "get_num_common_prefix_blocks");
  if (!use.granted() || !impl_->options.enable_caching) return counts;
  for (std::size_t g = 0; g < counts.size(); ++g) {
    counts[g] = impl_->coordinator->manager(g).num_common_prefix_blocks(sequence.state_->groups[g]);
  }
  return counts;
}

std::vector<PartialTailOffload> KVCacheManager::take_partial_tail_offloads(Sequence& sequence) {
  const ExclusiveUse use(*sequence.state_, "take_partial_tail_offloads");
  std::vector<PartialTailOffload> offloads;
  if (!use.granted()) return offloads;
  for (GroupState& group : sequence.state_->groups) {
    for (const PartialTailOffload& offload : std::exchange(group.offloads, {})) {
      if (!impl_->pool.touch(std::span(&offload.block, 1))) continue;  // its content would not survive: no offer
      if (impl_->options.residency_metrics) impl_->options.residency_metrics->on_block_accessed(offload.block);
      sequence.state_->pins.push_back(offload.block);
      offloads.push_back(offload);
    }
  }
  return offloads;
}

std::vector<BlockId> KVCacheManager::get_zeroing_block_ids_in_range(const Sequence& sequence, std::int64_t start,
                                                                    std::int64_t end) const {
  std::vector<BlockId> ids;
  for (std::size_t g = 0; g < impl_->coordinator->num_groups(); ++g) {
    const SingleTypeManager& manager = impl_->coordinator->manager(g);
    if (!manager.context().zero_new_blocks) continue;
    const std::vector<BlockId>& table = sequence.state_->groups[g].table;
    const auto length = static_cast<std::int64_t>(table.size());
    const std::int64_t first = std::clamp<std::int64_t>(start / manager.block_size(), 0, length);
    const std::int64_t last = std::clamp<std::int64_t>(cdiv(end, manager.block_size()), first, length);
    ids.insert(ids.end(), table.begin() + first, table.begin() + last);
  }
  return ids;
}

void KVCacheManager::record_blocks_for_zeroing(const Sequence& sequence, std::int64_t start) {
  for (std::size_t g = 0; g < impl_->coordinator->num_groups(); ++g) {
    SingleTypeManager& manager = impl_->coordinator->manager(g);
    if (!manager.context().zero_new_blocks) continue;
    const std::vector<BlockId>& table = sequence.state_->groups[g].table;
    const auto first = static_cast<std::size_t>(std::max<std::int64_t>(0, start / manager.block_size()));
    if (first < table.size()) manager.record_for_zeroing(std::span(table).subspan(first));
  }
}

}  // namespace kvpool
