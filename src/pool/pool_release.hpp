// BasicBlockPool: giving references back.
#pragma once

#include "pool/basic_block_pool.hpp"

namespace kvpool {

/// What is wrong with a name given to release.
template <template <class> class Atom, class Placement>
std::optional<ContractBreach> BasicBlockPool<Atom, Placement>::breach_of(BlockId block) const noexcept {
  if (block.value() >= num_blocks()) return ContractBreach::unknown_block;
  return std::nullopt;
}
template <template <class> class Atom, class Placement>
std::optional<ContractBreach> BasicBlockPool<Atom, Placement>::breach_of(const BlockHandle& block) const noexcept {
  if (block.pool != number_) return ContractBreach::foreign_handle;
  if (block.id.value() >= num_blocks()) return ContractBreach::unknown_block;
  if (handle(block.id).generation != block.generation) return ContractBreach::stale_handle;
  return std::nullopt;
}

template <template <class> class Atom, class Placement>
template <class Name>
void BasicBlockPool<Atom, Placement>::prefetch_lines(std::span<const Name> blocks) const noexcept {
  for (const Name& name : blocks) {
    if (id_of(name).value() < num_blocks()) protocol_.prefetch(id_of(name).value());
  }
}

template <template <class> class Atom, class Placement>
template <class Name>
std::span<const Name> BasicBlockPool<Atom, Placement>::portion_of(std::span<const Name> blocks,
                                                                  std::size_t from) noexcept {
  return from < blocks.size() ? blocks.subspan(from, std::min(kReleasePortion, blocks.size() - from))
                              : std::span<const Name>{};
}

/// How many of the blocks will probably need a place in the order.
template <template <class> class Atom, class Placement>
template <class Name>
std::uint32_t BasicBlockPool<Atom, Placement>::expected_places(std::span<const Name> blocks) const noexcept {
  std::uint32_t expected = 0;
  for (const Name& name : blocks) {
    const BlockId block = id_of(name);
    if (block.value() >= num_blocks()) continue;
    const BlockState state = protocol_.state(block.value());
    expected += state.refs() == 1 && (state.hashed() || target() == ReleaseTarget::order) ? 1U : 0U;
  }
  return expected;
}

/// Gives back one reference of each block. on_reachable(count) is called once the blocks that became free can be
/// reached; what they are worth is the caller's, to credit or to keep. In portions, so that the lines of one are loaded
/// while the one before it is worked off.
template <template <class> class Atom, class Placement>
template <class Name, class OnReachable>
bool BasicBlockPool<Atom, Placement>::release(std::span<const Name> blocks, const std::uint64_t* fence,
                                              OnReachable&& on_reachable) {
  Shard& home = here();
  Fences* waiting = fence != nullptr ? &install_fences() : fences();
  ReleaseTally tally;
  const auto on_drop = [&](std::uint32_t block) { erase_keys(block, collector(tally.removed)); };
  {
    typename Order::Tickets tickets(home.order, 0);
    typename Fences::Tickets fence_tickets;
    prefetch_lines(portion_of(blocks, 0));
    for (std::size_t from = 0; from < blocks.size(); from += kReleasePortion) {
      const std::span<const Name> portion = portion_of(blocks, from);
      prefetch_lines(portion_of(blocks, from + kReleasePortion));
      // With fences in use blocks may have to wait: places are taken one by one.
      if (waiting == nullptr) tickets.renew(expected_places(portion));
      for (const Name& name : portion) {
        const BlockId id = id_of(name);
        const std::uint32_t block = id.value();
        if (is_null(name)) continue;
        if (const std::optional<ContractBreach> breach = breach_of(name)) {
          report(*breach, "free_blocks", id);
          tally.good = false;
          continue;
        }
        if (fence != nullptr && protocol_.state(block).refs() > 0) waiting->require(block, *fence);
        const auto choose = [&] {
          // Read anew: the first fence ever may have been named by a former holder of this block.
          if (waiting == nullptr) waiting = fences();
          fence_tickets.attach(waiting);
          return waiting != nullptr && waiting->must_wait(block) ? ReleaseTarget::fence : target();
        };
        ReleaseOutcome outcome = protocol_.release(block, choose, tickets, fence_tickets, &tally.incidents.retries);
        // Between choice and exchange others may have pinned the block and given it back under a fence, which leaves
        // the same word. What they named is seen now, and no allocation can reach the block yet.
        if ((outcome == ReleaseOutcome::ordered || outcome == ReleaseOutcome::blank) && fences() != nullptr &&
            choose() == ReleaseTarget::fence && protocol_.hold_back(block, outcome, tickets.used(), fence_tickets)) {
          if (outcome == ReleaseOutcome::ordered) tickets.give_up();
          outcome = ReleaseOutcome::fenced;
        }
        switch (outcome) {
          case ReleaseOutcome::not_referenced:
            report(ContractBreach::double_free, "free_blocks", id);
            tally.good = false;
            break;
          case ReleaseOutcome::ordered:
            tickets.settle(protocol_, block, tally.incidents, on_drop);
            ++tally.ordered;
            break;
          case ReleaseOutcome::blank: tally.blank.append(protocol_, block); break;
          case ReleaseOutcome::fenced:
            fence_tickets.settle(protocol_, block);
            ++tally.fenced;
            break;
          case ReleaseOutcome::still_referenced: ++tally.shared; break;
        }
      }
    }
  }
  hand_over(home, tally, on_reachable);
  return tally.good;
}

/// Makes what a release freed reachable, and counts it. The numbers come last: until the blocks are credited others are
/// refused.
template <template <class> class Atom, class Placement>
template <class OnReachable>
void BasicBlockPool<Atom, Placement>::hand_over(Shard& home, ReleaseTally& tally, OnReachable&& on_reachable) {
  const auto on_drop = [&](std::uint32_t block) { erase_keys(block, collector(tally.removed)); };
  home.order.stack().push(protocol_, tally.blank);
  home.order.compact(protocol_, tally.ordered, tally.incidents, on_drop);
  if (!tally.removed.empty()) events_.append_removals(std::move(tally.removed));
  const std::uint32_t freed = tally.ordered + tally.blank.size();
  on_reachable(freed);
  home.counters.template add<&PoolStats::released_blocks>(freed + tally.fenced);
  home.counters.template add_visibly<&PoolFlows::shared_releases>(tally.shared);
  home.counters.template add<&PoolFlows::fenced_blocks>(tally.fenced);
  note(home.counters, tally.incidents);
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::free_blocks(std::span<const BlockId> blocks) {
  return release(blocks, nullptr, [this](std::uint32_t freed) { capacity_.credit(freed); });
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::free_blocks(std::span<const BlockId> blocks, std::uint64_t fence) {
  return release(blocks, &fence, [this](std::uint32_t freed) { capacity_.credit(freed); });
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::free_blocks(std::span<const BlockHandle> blocks) {
  return release(blocks, nullptr, [this](std::uint32_t freed) { capacity_.credit(freed); });
}

}  // namespace kvpool
