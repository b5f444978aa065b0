#include "manager/mamba_align_manager.hpp"

#include <algorithm>
#include <utility>

#include "manager/block_publisher.hpp"

namespace kvpool {

BlockNeed MambaAlignManager::blocks_to_allocate(const GroupState& state, const SlotDemand& demand,
                                                std::span<const BlockHandle> hits) const {
  if (!hits.empty() && published_this_step(hits.back())) return {std::int64_t{pool().num_blocks()} + 1, 0};
  const bool partial = state.partial || (!hits.empty() && demand.local_computed % block_size() != 0);
  const std::int64_t copies = partial ? 1 : 0;
  std::int64_t fresh = cdiv(demand.main_tokens, block_size()) + num_speculative_blocks() -
                       static_cast<std::int64_t>(hits.size()) - state.length();
  if (partial) fresh = std::max<std::int64_t>(fresh, 0) + 1;
  // Only the running state is new (and, the first time, the speculative ones): the rest is null or moves.
  if (fresh > 0) fresh = 1 + copies + (state.allocated ? 0 : num_speculative_blocks());
  return {fresh, evictable_hits(hits)};
}

std::int64_t MambaAlignManager::blocks_not_announced(const GroupState& state, const SlotDemand& demand) const {
  if (state.tracked() || state.length() > 0 || demand.total_computed <= demand.local_computed) return 0;
  return cdiv(demand.main_tokens, block_size()) > cdiv(demand.total_computed, block_size()) ? 1 : 0;
}

// The speculative states of the step before become positions further on, so that no new ones are needed.
void MambaAlignManager::move_speculative_blocks(GroupState& state, std::int64_t num_skipped) {
  const std::int64_t length = state.length();
  if (length < num_skipped) state.table.resize(static_cast<std::size_t>(num_skipped), kNullBlock);
  if (!state.allocated) return;
  for (std::int64_t i = length - num_speculative_blocks(); i < length && i < num_skipped; ++i) {
    const BlockId moved = std::exchange(state.table[static_cast<std::size_t>(i)], kNullBlock);
    state.table.push_back(moved);
  }
}

// The request goes on in the block whose content was registered as the prompt's tail. Workers only ever
// append to their table, so the request keeps the block, and a fresh one takes over content and keys.
BlockId MambaAlignManager::detach_running_state(GroupState& state, Reservation& reservation) {
  const PartialHit partial = *std::exchange(state.partial, std::nullopt);
  const BlockId keeper = take_block(reservation);
  pool().move_block_hashes(partial.source, keeper);
  queue_copy(partial.source, keeper);
  (void)pool().touch(std::span(&partial.source, 1));  // referenced by the table already
  if (state.tail_boundary) {
    state.offloads.push_back({context().id, keeper, *state.tail_boundary});
    state.tail_boundary.reset();
  }
  note_published(keeper);
  return keeper;
}

std::vector<BlockId> MambaAlignManager::allocate_new_blocks(GroupState& state, const SlotDemand& demand,
                                                            Reservation& reservation) {
  enter_table(state);
  const std::int64_t need = cdiv(demand.main_tokens, block_size()) + num_speculative_blocks();
  const std::int64_t before = state.length();
  const bool was_allocated = state.allocated;
  if (need <= before && !state.partial) {
    state.allocated = true;
    return {};
  }
  if (was_allocated) {
    state.last_state = before - 1 - num_speculative_blocks();
  } else if (before > 0) {
    state.last_state = before - 1;
  }
  move_speculative_blocks(state, need - num_speculative_blocks() - 1);

  std::vector<BlockId> fresh;
  if (state.partial) {
    if (was_allocated) {
      detach_running_state(state, reservation);
    } else {
      fresh.push_back(copy_on_write(state, reservation));
    }
  }
  append_blocks(state, need - state.length(), reservation);
  state.allocated = true;
  fresh.insert(fresh.end(), state.table.begin() + before, state.table.end());
  return fresh;
}

void MambaAlignManager::cache_blocks(const Request& request, GroupState& state, std::int64_t num_tokens,
                                     std::int64_t reached) {
  MambaManager::cache_blocks(request, state, num_tokens, reached);
  // The running block holds the state after the last token: at an earlier boundary it is gone.
  if (num_tokens == reached) register_prompt_tail(request, state, num_tokens);
}

void MambaAlignManager::register_prompt_tail(const Request& request, GroupState& state, std::int64_t num_tokens) {
  const std::int64_t unit = context().hash_block_size;
  if (context().units_per_block() == 1 || num_tokens % block_size() == 0 || num_tokens % unit != 0) return;
  if (num_tokens != request.num_prompt_tokens() / unit * unit) return;
  const std::int64_t index = num_tokens / block_size();
  if (index >= state.length()) return;
  const BlockId block = state.table[static_cast<std::size_t>(index)];
  const std::optional<BlockKey> key = BlockPublisher(context()).cache_partial_block(request, block, num_tokens);
  if (!key) return;
  state.partial = PartialHit{index, block};
  state.num_cached = index;
  state.tail_boundary = num_tokens;
  note_published(*key);
}

bool MambaAlignManager::leaves_last_state(const GroupState& state, std::int64_t processed) const {
  if (!state.last_state || *state.last_state >= cdiv(processed, block_size()) - 1) return false;
  return *state.last_state < state.length() && state.table[static_cast<std::size_t>(*state.last_state)] != kNullBlock;
}

// Null entries between chunks stop the general walk, so the state of the step before is found by its position.
void MambaAlignManager::remove_skipped_blocks(GroupState& state, std::int64_t processed,
                                              std::int64_t num_prompt_tokens) {
  SingleTypeManager::remove_skipped_blocks(state, processed, num_prompt_tokens);
  if (!leaves_last_state(state, processed)) return;
  const BlockId leaving = std::exchange(state.table[static_cast<std::size_t>(*state.last_state)], kNullBlock);
  pool().free_blocks(std::span(&leaving, 1));
}

std::int64_t MambaAlignManager::releasable_blocks(const GroupState& state, std::int64_t processed,
                                                  std::int64_t num_prompt_tokens) const {
  std::int64_t count = SingleTypeManager::releasable_blocks(state, processed, num_prompt_tokens);
  if (!leaves_last_state(state, processed)) return count;
  const Range range = leaving_range(state, processed, num_prompt_tokens);
  for (std::int64_t i = range.end - 1; i >= *state.last_state; --i) {
    if (state.table[static_cast<std::size_t>(i)] == kNullBlock) break;
    if (i == *state.last_state) return count;  // counted by the walk
  }
  if (pool().ref_count(state.table[static_cast<std::size_t>(*state.last_state)]) == 1) ++count;
  return count;
}

}  // namespace kvpool
