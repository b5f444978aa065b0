// BasicBlockPool: blocks that wait for work in flight.
#pragma once

#include "pool/basic_block_pool.hpp"

namespace kvpool {

/// Places for waiting blocks, at least; unless BlockPoolOptions::ring_slots says how many.
inline constexpr std::uint32_t kFenceSlots = 256;

/// Most pools never see a fence: the queue is made by the first one. Lock-free; who loses the race to install
/// throws its own away.
template <template <class> class Atom, class Placement>
typename BasicBlockPool<Atom, Placement>::Fences& BasicBlockPool<Atom, Placement>::install_fences() {
  Fences* current = fences();
  if (current != nullptr) return *current;
  // Blocks that are pinned and freed again leave dead entries behind one that waits for long. The ring of a small pool
  // would be full of them soon, and a block without a slot comes into the order by its number.
  const std::uint32_t slots = options_.ring_slots != 0 ? layout_.ring_slots : std::max(layout_.ring_slots, kFenceSlots);
  auto fresh = std::make_unique<Fences>(num_blocks(), slots, codec_);
  if (fences_.compare_exchange_strong(current, fresh.get(), std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {  // [L1]
    return *fresh.release();
  }
  return *current;
}

/// A block that the fence queue handed over: into the free order, then credited.
template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::unfence(std::uint32_t block, std::uint32_t ticket) {
  Shard& home = here();
  OrderIncidents incidents;
  RemovedKeys removed;
  const auto on_drop = [&](std::uint32_t dropped) { erase_keys(dropped, collector(removed)); };
  ReleaseOutcome outcome{};
  {
    typename Order::Tickets tickets(home.order, 0);
    outcome = protocol_.unfence(block, ticket, target(), tickets);
    if (outcome == ReleaseOutcome::ordered) tickets.settle(protocol_, block, incidents, on_drop);
  }
  if (outcome == ReleaseOutcome::not_referenced) return;  // pinned meanwhile
  if (outcome == ReleaseOutcome::blank) {
    typename Order::Stack::Chain chain;
    chain.append(protocol_, block);
    home.order.stack().push(protocol_, chain);
  } else {
    home.order.compact(protocol_, 1, incidents, on_drop);
  }
  events_.append_removals(std::move(removed));
  capacity_.credit(1);
  home.counters.template add<&PoolFlows::unfenced_blocks>(1);
  note(home.counters, incidents);
}

template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::drain_fences(Fences& fences, std::size_t limit, bool walk) {
  const auto hand_over = [this](std::uint32_t block, std::uint32_t ticket) { unfence(block, ticket); };
  fences.drain(protocol_, limit, hand_over);
  if (walk && fences.needs_walk()) fences.walk(protocol_, hand_over);
}

template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::advance_fence(std::uint64_t value) {
  Fences& waiting = install_fences();
  waiting.advance(value);
  drain_fences(waiting, kFencePortion, false);
}

}  // namespace kvpool
