#include "manager/single_type_manager.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "kvpool/foundation/contract.hpp"
#include "kvpool/manager/residency_metrics.hpp"
#include "manager/block_publisher.hpp"

namespace kvpool {

std::int64_t SingleTypeManager::skipped_tokens(std::int64_t /*processed*/) const noexcept { return 0; }

// --- allocation ---------------------------------------------------------------------------------------------

std::int64_t SingleTypeManager::evictable_hits(std::span<const BlockHandle> hits) const {
  return std::count_if(hits.begin(), hits.end(),
                       [this](const BlockHandle& hit) { return !hit.is_null() && pool().ref_count(hit.id) == 0; });
}

std::size_t SingleTypeManager::unneeded_hits(std::int64_t computed, std::size_t num_hits) const noexcept {
  const std::int64_t skipped = std::max<std::int64_t>(floor_div(skipped_tokens(computed), block_size()), 0);
  return std::min(static_cast<std::size_t>(skipped), num_hits);
}

BlockNeed SingleTypeManager::blocks_to_allocate(const GroupState& state, const SlotDemand& demand,
                                                std::span<const BlockHandle> hits) const {
  std::int64_t need = cdiv(demand.tokens, block_size());
  if (demand.apply_admission_cap && context_.admission_cap) need = std::min(need, *context_.admission_cap);
  const std::int64_t have = state.length();
  if (state.tracked()) return {std::max<std::int64_t>(need - have, 0), 0};

  const std::int64_t skipped = floor_div(skipped_tokens(demand.total_computed), block_size());
  const auto num_hits = static_cast<std::int64_t>(hits.size());
  const std::int64_t fresh = std::max<std::int64_t>(need - std::max(skipped, num_hits + have), 0);
  const std::int64_t dropped = std::clamp<std::int64_t>(skipped - have, 0, num_hits);
  const std::int64_t partial = num_hits > 0 && demand.local_computed % block_size() != 0 ? 1 : 0;
  return {fresh + partial, evictable_hits(hits.subspan(static_cast<std::size_t>(dropped)))};
}

void SingleTypeManager::enter_table(GroupState& state) {
  if (state.has_table) return;
  state.has_table = true;
  num_tables_.fetch_add(1, std::memory_order_relaxed);
}

void SingleTypeManager::add_local_blocks(GroupState& state, const SlotDemand& demand,
                                         std::span<const BlockHandle> hits) {
  enter_table(state);
  const std::int64_t skipped =
      std::max<std::int64_t>(floor_div(skipped_tokens(demand.total_computed), block_size()), 0);
  const std::span<const BlockHandle> kept = hits.subspan(unneeded_hits(demand.total_computed, hits.size()));
  state.table.assign(static_cast<std::size_t>(skipped), kNullBlock);
  for (const BlockHandle& hit : kept) {
    state.table.push_back(hit.id);
    if (context_.metrics != nullptr && !hit.is_null()) context_.metrics->on_block_accessed(hit.id);
  }
  state.num_cached = state.length();
  if (!kept.empty() && demand.local_computed % block_size() != 0) {
    const std::int64_t index = demand.local_computed / block_size();
    state.partial = PartialHit{index, kept.back().id};
    state.num_cached = index;
  }
}

void SingleTypeManager::allocate_external_blocks(GroupState& state, const SlotDemand& demand,
                                                 Reservation& reservation) {
  if (demand.total_computed - skipped_tokens(demand.total_computed) <= 0) return;
  append_blocks(state, cdiv(demand.total_computed, block_size()) - state.length(), reservation);
}

std::vector<BlockId> SingleTypeManager::allocate_new_blocks(GroupState& state, const SlotDemand& demand,
                                                            Reservation& reservation) {
  enter_table(state);
  std::vector<BlockId> fresh;
  if (state.partial) fresh.push_back(copy_on_write(state, reservation));
  const std::int64_t before = state.length();
  append_blocks(state, cdiv(demand.tokens, block_size()) - before, reservation);
  fresh.insert(fresh.end(), state.table.begin() + before, state.table.end());
  return fresh;
}

BlockId SingleTypeManager::copy_on_write(GroupState& state, Reservation& reservation) {
  const PartialHit partial = *std::exchange(state.partial, std::nullopt);
  const BlockId target = take_block(reservation);
  state.table[static_cast<std::size_t>(partial.index)] = target;
  queue_copy(partial.source, target);
  (void)pool().touch(std::span(&target, 1));  // referenced already, so it cannot fail
  if (context_.zero_copy_targets) blocks_to_zero_.push(target);
  return target;
}

void SingleTypeManager::append_blocks(GroupState& state, std::int64_t count, Reservation& reservation) {
  if (count <= 0) return;
  const std::size_t before = state.table.size();
  state.table.resize(before + static_cast<std::size_t>(count));
  const std::span<BlockId> fresh = std::span(state.table).subspan(before);
  take_blocks(reservation, fresh);
  if (context_.zero_new_blocks) record_for_zeroing(fresh);
}

BlockId SingleTypeManager::take_block(Reservation& reservation) {
  BlockId block{};
  take_blocks(reservation, std::span(&block, 1));
  return block;
}

void SingleTypeManager::take_blocks(Reservation& reservation, std::span<BlockId> out) {
  if (out.size() > reservation.remaining()) {
    fail_contract({ContractBreach::corrupted_state, "an allocation takes more blocks than were announced for it"});
  }
  pool().allocate(reservation, out);
  if (context_.metrics == nullptr) return;
  for (const BlockId block : out) context_.metrics->on_block_allocated(block, context_.enable_caching);
}

void SingleTypeManager::record_for_zeroing(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) blocks_to_zero_.push(block);
}

// --- content --------------------------------------------------------------------------------------------------

RetentionMask SingleTypeManager::reachable_blocks(std::int64_t /*begin*/, std::int64_t /*end*/,
                                                  std::span<const std::int64_t> /*boundaries*/) const {
  return RetentionMask::everything();
}

void SingleTypeManager::cache_blocks(const Request& request, GroupState& state, std::int64_t num_tokens,
                                     std::int64_t /*reached*/) {
  const std::int64_t cached = std::max<std::int64_t>(state.num_cached, 0);
  const std::int64_t full = std::min(num_tokens / block_size(), state.length());
  if (cached >= full) return;
  std::array<std::int64_t, 2> boundaries{request.num_prompt_tokens() - 1, request.shared_prefix_boundary};
  const std::size_t count = request.shared_prefix_boundary != 0 ? 2 : 1;
  const RetentionMask mask = reachable_blocks(cached, full, std::span(boundaries).first(count));
  BlockPublisher(context_).cache_full_blocks(request, state.table, cached, full, mask);
  state.num_cached = full;
}

// --- giving back ------------------------------------------------------------------------------------------------

SingleTypeManager::Range SingleTypeManager::leaving_range(const GroupState& state, std::int64_t processed,
                                                          std::int64_t /*num_prompt_tokens*/) const {
  const std::int64_t skipped = skipped_tokens(processed);
  if (skipped <= 0) return {};
  return {0, std::min(skipped / block_size(), state.length())};
}

// Everything in front of a null entry went before, so the walk costs only what leaves now.
void SingleTypeManager::remove_skipped_blocks(GroupState& state, std::int64_t processed,
                                              std::int64_t num_prompt_tokens) {
  const Range range = leaving_range(state, processed, num_prompt_tokens);
  std::vector<BlockId> leaving;
  for (std::int64_t i = range.end - 1; i >= range.begin; --i) {
    BlockId& entry = state.table[static_cast<std::size_t>(i)];
    if (entry == kNullBlock) break;
    leaving.push_back(std::exchange(entry, kNullBlock));
  }
  if (leaving.empty()) return;
  state.shared_run.reset();
  pool().free_blocks(leaving);
}

std::int64_t SingleTypeManager::releasable_blocks(const GroupState& state, std::int64_t processed,
                                                  std::int64_t num_prompt_tokens) const {
  const Range range = leaving_range(state, processed, num_prompt_tokens);
  std::int64_t count = 0;
  for (std::int64_t i = range.end - 1; i >= range.begin; --i) {
    const BlockId block = state.table[static_cast<std::size_t>(i)];
    if (block == kNullBlock) break;
    if (pool().ref_count(block) == 1) ++count;
  }
  return count;
}

std::vector<BlockId> SingleTypeManager::pop_blocks(GroupState& state) {
  if (state.has_table) num_tables_.fetch_sub(1, std::memory_order_relaxed);
  std::vector<BlockId> blocks = std::move(state.table);
  state = GroupState{};
  return blocks;
}

void SingleTypeManager::free(GroupState& state) {
  std::vector<BlockId> blocks = pop_blocks(state);
  if (blocks.empty()) return;
  std::reverse(blocks.begin(), blocks.end());
  pool().free_blocks(blocks);
}

std::int64_t SingleTypeManager::num_common_prefix_blocks(GroupState& /*state*/) const { return 0; }

}  // namespace kvpool
