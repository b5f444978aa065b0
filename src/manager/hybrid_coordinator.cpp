#include "manager/hybrid_coordinator.hpp"

#include <algorithm>
#include <utility>

namespace kvpool {

HybridCoordinator::HybridCoordinator(BlockPool& pool, Managers managers, const CoordinatorOptions& options,
                                     std::span<const KVCacheGroup> groups, const std::vector<bool>& eagle_groups)
    : CacheCoordinator(pool, std::move(managers), options) {
  merge_equal_specs(groups, eagle_groups);
  partial_hits_ = can_hit_partially();
}

void HybridCoordinator::merge_equal_specs(std::span<const KVCacheGroup> groups, const std::vector<bool>& eagle_groups) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto same = [&](const SpecGroup& group) { return groups[group.ids.front().value()].spec == groups[g].spec; };
    auto position = std::find_if(spec_groups_.begin(), spec_groups_.end(), same);
    if (position == spec_groups_.end()) position = spec_groups_.insert(spec_groups_.end(), SpecGroup{});
    position->ids.push_back(GroupId{static_cast<std::uint32_t>(g)});
    position->use_eagle = position->use_eagle || eagle_groups[g];
  }
  std::stable_partition(spec_groups_.begin(), spec_groups_.end(),
                        [this](const SpecGroup& group) { return first_manager(group).is_full_attention(); });
  for (const SpecGroup& group : spec_groups_) {
    for (const GroupId id : group.ids) manager(id.value()).set_use_eagle(group.use_eagle);
  }
}

bool HybridCoordinator::can_hit_partially() const {
  const std::int64_t unit = options().hash_block_size;
  bool wanted = false;
  for (std::size_t g = 0; g < num_groups(); ++g) {
    const SingleTypeManager& rules = manager(g);
    const bool ends_inside = options().dcp_world_size > 1 ? rules.block_size() >= unit : rules.block_size() > unit;
    wanted = wanted || (rules.keeps_prompt_tails() && ends_inside);
    if (!rules.supports_fine_lookup() && rules.block_size() != unit) return false;
  }
  return wanted;
}

std::int64_t HybridCoordinator::align(std::int64_t tokens) const noexcept {
  if (partial_hits_) return tokens;
  return tokens / options().scheduler_block_size * options().scheduler_block_size;
}

std::int64_t HybridCoordinator::drop_margin(const SingleTypeManager& manager) const noexcept {
  const std::int64_t unit = options().hash_block_size;
  const bool fine = partial_hits_ && manager.supports_fine_lookup() && manager.block_size() > unit;
  return fine ? unit : manager.block_size();
}

struct HybridCoordinator::Search {
  std::span<const BlockHash> hashes;
  std::int64_t max_length = 0;
  std::int64_t longest = 0;
  std::vector<bool> verified;  ///< spec groups that dropped their last unit from the current candidate
  std::vector<bool> looked_up;
  std::vector<std::int64_t> length;             ///< per spec group
  std::vector<std::vector<BlockHandle>> lists;  ///< per group
};

std::int64_t HybridCoordinator::shorten(Search& search, std::int64_t candidate) const {
  std::int64_t current = candidate;
  for (std::size_t i = 0; i < spec_groups_.size(); ++i) {
    const SpecGroup& group = spec_groups_[i];
    const SingleTypeManager& rules = first_manager(group);
    if (rules.is_full_attention() && search.looked_up[i]) {
      current = std::min(current, search.length[i]);  // every shorter prefix holds as well
      continue;
    }
    const bool drop = group.use_eagle && !search.verified[i];
    std::int64_t probe = current;
    // The unit to be dropped may lie behind the candidate.
    if (drop && !rules.is_state()) probe = std::min(current + drop_margin(rules), search.max_length);
    GroupHits hits = rules.find_longest_cache_hit({search.hashes, probe, group.ids, drop, alignment()});
    if (drop) {
      search.verified[i] = true;
    } else if (hits.length < current) {
      search.verified.assign(search.verified.size(), false);
    }
    current = hits.length;
    search.looked_up[i] = true;
    search.length[i] = hits.length;
    for (std::size_t k = 0; k < group.ids.size(); ++k) {
      search.lists[group.ids[k].value()] = std::move(hits.lists[k]);
    }
    search.longest = std::max(search.longest, current);
  }
  return current;
}

CoordinatedHit HybridCoordinator::find_longest_cache_hit(std::span<const BlockHash> hashes,
                                                         std::int64_t max_length) const {
  Search search;
  search.hashes = hashes;
  search.max_length = max_length;
  search.verified.assign(spec_groups_.size(), false);
  search.looked_up.assign(spec_groups_.size(), false);
  search.length.assign(spec_groups_.size(), 0);
  search.lists.resize(num_groups());
  // With full attention and one other type the first pass is final: full attention holds for any prefix.
  const bool one_pass = spec_groups_.size() == 2 && first_manager(spec_groups_.front()).is_full_attention();
  std::int64_t length = max_length;
  for (;;) {
    const std::int64_t shorter = shorten(search, length);
    if (shorter >= length) break;
    length = shorter;
    if (one_pass) break;
  }
  for (const SpecGroup& group : spec_groups_) {
    if (!first_manager(group).is_full_attention()) continue;
    for (const GroupId id : group.ids) {
      std::vector<BlockHandle>& list = search.lists[id.value()];
      const auto kept = static_cast<std::size_t>(cdiv(length, manager(id.value()).block_size()));
      list.resize(std::min(list.size(), kept));
    }
  }
  CoordinatedHit hit;
  hit.blocks.groups = std::move(search.lists);
  hit.length = length;
  hit.uncached_common = std::max<std::int64_t>(search.longest - length, 0);
  return hit;
}

std::optional<PrefixHit> HybridCoordinator::find_hit_per_group(std::span<const BlockHash> hashes,
                                                               std::int64_t max_length) const {
  const bool has_state = std::any_of(spec_groups_.begin(), spec_groups_.end(),
                                     [this](const SpecGroup& group) { return first_manager(group).is_state(); });
  if (!has_state || !first_manager(spec_groups_.front()).is_full_attention()) return std::nullopt;
  PrefixHit result;
  result.blocks.groups.resize(num_groups());
  std::vector<std::int64_t> lengths;
  for (const SpecGroup& group : spec_groups_) {
    GroupHits hits =
        first_manager(group).find_longest_cache_hit({hashes, max_length, group.ids, group.use_eagle, alignment()});
    lengths.push_back(hits.length);
    for (std::size_t k = 0; k < group.ids.size(); ++k) {
      result.blocks.groups[group.ids[k].value()] = std::move(hits.lists[k]);
    }
  }
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  if (*longest > lengths.front()) return std::nullopt;  // a state behind the attention prefix is of no use
  result.num_computed_tokens = lengths.front();
  result.diverged = *shortest < lengths.front();
  return result;
}

void HybridCoordinator::cache_blocks(const Request& request, SequenceState& state, std::int64_t num_tokens) {
  const std::int64_t aligned = align(num_tokens);
  for (std::size_t g = 0; g < num_groups(); ++g) {
    std::int64_t tokens = aligned;
    if (manager(g).use_eagle() && aligned > 0) {
      const std::int64_t final_tokens = std::max<std::int64_t>(0, num_tokens - num_reprefillable());
      tokens = std::min(final_tokens, align(final_tokens) + manager(g).block_size());
    }
    manager(g).cache_blocks(request, state.groups[g], tokens, num_tokens);
  }
}

}  // namespace kvpool
