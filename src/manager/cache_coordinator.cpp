#include "manager/cache_coordinator.hpp"

#include <algorithm>

namespace kvpool {

std::int64_t CacheCoordinator::num_reprefillable() const noexcept {
  return std::max<std::int64_t>(0, options_.num_prefill_lookahead - 1);
}

std::optional<PrefixHit> CacheCoordinator::find_hit_per_group(std::span<const BlockHash> /*hashes*/,
                                                              std::int64_t /*max_length*/) const {
  return std::nullopt;
}

std::span<const BlockHandle> CacheCoordinator::hits_of(std::size_t group, const AllocationPlan& plan) const noexcept {
  if (plan.hits == nullptr || managers_[group]->holds_encoder_tokens()) return {};
  return plan.hits->groups[group];
}

BlockDemand CacheCoordinator::blocks_to_allocate(const SequenceState& state, const AllocationPlan& plan) const {
  BlockDemand sum;
  for (std::size_t g = 0; g < managers_.size(); ++g) {
    const SlotDemand& demand = demand_of(*managers_[g], plan);
    const BlockNeed need = managers_[g]->blocks_to_allocate(state.groups[g], demand, hits_of(g, plan));
    sum.announced += need.total();
    sum.reserved += std::max<std::int64_t>(need.fresh, 0) + need.evictable;
    sum.reserved += managers_[g]->blocks_not_announced(state.groups[g], demand);
    sum.for_hits += need.evictable;
  }
  return sum;
}

namespace {

/// The key under which a hit is pinned: that of the whole block; for the last block of a hit that ends
/// inside it, any key of the block that covers the hit.
std::optional<BlockKey> key_of_hit(const BlockPool& pool, const GroupContext& context,
                                   std::span<const BlockHash> hashes, BlockHandle hit, std::int64_t index,
                                   std::int64_t hit_tokens) {
  const std::int64_t units = context.units_per_block();
  const auto known = static_cast<std::int64_t>(hashes.size());
  const std::int64_t end = (index + 1) * units;
  if (hit_tokens >= (index + 1) * context.block_size) {
    if (end > known) return std::nullopt;
    return BlockKey{hashes[static_cast<std::size_t>(end - 1)], context.id};
  }
  const std::int64_t first = cdiv(hit_tokens, context.hash_block_size);
  for (std::int64_t u = std::max<std::int64_t>(first, 1); u <= std::min(end, known); ++u) {
    const BlockKey key{hashes[static_cast<std::size_t>(u - 1)], context.id};
    if (pool.has_key(hit.id, key)) return key;
  }
  return std::nullopt;
}

}  // namespace

std::span<const BlockHandle> CacheCoordinator::needed_hits(std::size_t group,
                                                           const AllocationPlan& plan) const noexcept {
  const std::span<const BlockHandle> hits = hits_of(group, plan);
  return hits.subspan(managers_[group]->unneeded_hits(plan.demand.total_computed, hits.size()));
}

// Others may have let go of the hit since the demand was counted: then it needs a block more.
bool CacheCoordinator::pin_one(BlockHandle hit, const BlockKey& key, Reservation& reservation) const {
  if (pool_.pin(hit, key, reservation)) return true;
  if (reservation.remaining() > 0) return false;
  std::optional<Reservation> one_more = pool_.try_reserve(1);
  return one_more && pool_.pin(hit, key, *one_more);
}

std::size_t CacheCoordinator::pin_group(std::size_t group, const Request& request, const AllocationPlan& plan,
                                        Reservation& reservation) const {
  const GroupContext& context = managers_[group]->context();
  const std::span<const BlockHandle> hits = needed_hits(group, plan);
  const std::size_t first = hits_of(group, plan).size() - hits.size();
  const auto stride = static_cast<std::size_t>(context.units_per_block());
  const std::span<const BlockHash> hashes = request.block_hashes();
  const HashChain chain{hashes.subspan(std::min(first * stride, hashes.size())), stride};
  const auto whole = static_cast<std::size_t>(plan.demand.local_computed / context.block_size);
  const std::size_t num_whole = std::min({hits.size(), chain.size(), whole - std::min(first, whole)});
  std::size_t pinned = pool_.pin_prefix(hits.first(num_whole), chain, context.id, reservation);
  for (; pinned < hits.size(); ++pinned) {
    if (hits[pinned].is_null()) continue;
    const auto index = static_cast<std::int64_t>(first + pinned);
    const auto key = key_of_hit(pool_, context, hashes, hits[pinned], index, plan.demand.local_computed);
    if (!key || !pin_one(hits[pinned], *key, reservation)) break;
  }
  return pinned;
}

bool CacheCoordinator::pin_hits(const Request& request, const AllocationPlan& plan, Reservation& reservation) const {
  if (plan.hits == nullptr) return true;
  for (std::size_t g = 0; g < managers_.size(); ++g) {
    const std::size_t pinned = pin_group(g, request, plan, reservation);
    if (pinned == needed_hits(g, plan).size()) continue;
    std::vector<BlockId> taken;
    for (std::size_t done = 0; done <= g; ++done) {
      const std::span<const BlockHandle> hits = needed_hits(done, plan);
      for (const BlockHandle& hit : done < g ? hits : hits.first(pinned)) taken.push_back(hit.id);
    }
    std::reverse(taken.begin(), taken.end());
    pool_.free_blocks(taken);
    return false;
  }
  return true;
}

// All groups take over their hits before any of them gets fresh blocks.
void CacheCoordinator::allocate_computed_blocks(SequenceState& state, const AllocationPlan& plan,
                                                Reservation& reservation) {
  if (!state.fresh()) return;
  for (std::size_t g = 0; g < managers_.size(); ++g) {
    managers_[g]->add_local_blocks(state.groups[g], demand_of(*managers_[g], plan), hits_of(g, plan));
  }
  if (plan.external_tokens <= 0) return;
  for (std::size_t g = 0; g < managers_.size(); ++g) {
    managers_[g]->allocate_external_blocks(state.groups[g], demand_of(*managers_[g], plan), reservation);
  }
}

std::vector<std::vector<BlockId>> CacheCoordinator::allocate_new_blocks(SequenceState& state,
                                                                        const AllocationPlan& plan,
                                                                        Reservation& reservation) {
  std::vector<std::vector<BlockId>> fresh(managers_.size());
  for (std::size_t g = 0; g < managers_.size(); ++g) {
    fresh[g] = managers_[g]->allocate_new_blocks(state.groups[g], demand_of(*managers_[g], plan), reservation);
  }
  return fresh;
}

void CacheCoordinator::publish(const Request& request, SequenceState& state, std::int64_t num_tokens) {
  const auto hashed_units = static_cast<std::int64_t>(request.block_hashes().size());
  const std::int64_t first_unhashed = (hashed_units + 1) * options_.hash_block_size - 1;
  cache_blocks(request, state, std::min({num_tokens, request.num_tokens(), first_unhashed}));
}

void CacheCoordinator::remove_skipped_blocks(SequenceState& state, std::int64_t processed,
                                             std::int64_t num_prompt_tokens) {
  for (std::size_t g = 0; g < managers_.size(); ++g) {
    managers_[g]->remove_skipped_blocks(state.groups[g], processed, num_prompt_tokens);
  }
}

std::int64_t CacheCoordinator::releasable_blocks(const SequenceState& state, std::int64_t processed,
                                                 std::int64_t num_prompt_tokens) const {
  std::int64_t count = 0;
  for (std::size_t g = 0; g < managers_.size(); ++g) {
    count += managers_[g]->releasable_blocks(state.groups[g], processed, num_prompt_tokens);
  }
  return count;
}

void CacheCoordinator::free(SequenceState& state) {
  if (!state.pins.empty()) pool_.free_blocks(state.pins);
  state.pins.clear();
  for (std::size_t g = 0; g < managers_.size(); ++g) managers_[g]->free(state.groups[g]);
}

std::vector<BlockId> CacheCoordinator::pop_blocks(SequenceState& state) {
  std::vector<BlockId> blocks = std::move(state.pins);
  state.pins.clear();
  for (std::size_t g = 0; g < managers_.size(); ++g) {
    const std::vector<BlockId> table = managers_[g]->pop_blocks(state.groups[g]);
    blocks.insert(blocks.end(), table.begin(), table.end());
  }
  return blocks;
}

void CacheCoordinator::new_step_starts() {
  for (const auto& manager : managers_) manager->new_step_starts();
}

}  // namespace kvpool
