// BasicBlockPool: capacity, taking blocks and references.
#pragma once

#include "pool/basic_block_pool.hpp"

namespace kvpool {

template <template <class> class Atom, class Placement>
BasicBlockPool<Atom, Placement>::BasicBlockPool(const BlockPoolOptions& options)
    : options_(options),
      layout_(PoolLayout::of(options)),
      codec_(layout_.shards),
      number_(next_pool_number()),
      protocol_(options.num_blocks, options.huge_pages),
      index_(layout_.index_buckets, options.huge_pages),
      capacity_(options.num_blocks - 1),
      events_(layout_.shards) {
  std::uint64_t first = 1;
  for (std::uint32_t number = 0; number < layout_.shards; ++number) {
    shards_.push_back(std::make_unique<Shard>(number, layout_, codec_, options_));
    const std::uint64_t end = 1 + (std::uint64_t{options.num_blocks - 1} * (number + 1) / layout_.shards);
    typename Order::Stack::Chain chain;
    for (; first < end; ++first) chain.append(protocol_, static_cast<std::uint32_t>(first));
    shards_.back()->order.stack().push(protocol_, chain);
  }
}

template <template <class> class Atom, class Placement>
BasicBlockPool<Atom, Placement>::~BasicBlockPool() {
  delete fences_.load(std::memory_order_acquire);       // [L1]
  delete secondaries_.load(std::memory_order_acquire);  // [L1]
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::known(BlockId block, const char* function) const {
  if (block.value() < num_blocks()) return true;
  report(ContractBreach::unknown_block, function, block);
  return false;
}

template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::report(ContractBreach breach, const char* function, BlockId block) const {
  std::string detail = std::string(function) + ": block " + std::to_string(block.value()) + " of a pool of " +
                       std::to_string(num_blocks());
  if (block.value() < num_blocks()) {
    const BlockState state = protocol_.state(block.value());
    detail += ", references " + std::to_string(state.refs()) + ", generation " + std::to_string(state.generation());
  }
  report_contract_violation({breach, std::move(detail)});
}

template <template <class> class Atom, class Placement>
std::uint32_t BasicBlockPool<Atom, Placement>::num_free_blocks() const noexcept {
  return static_cast<std::uint32_t>(capacity_.free());
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::try_reserve(std::uint32_t count, std::uint32_t keep_free) {
  Fences* const waiting = fences();
  if (waiting != nullptr) drain_fences(*waiting, kFencePortion, false);
  if (capacity_.reserve(count, keep_free)) return true;
  if (waiting != nullptr) {
    drain_fences(*waiting, num_blocks(), true);
    if (capacity_.reserve(count, keep_free)) return true;
  }
  here().counters.template add<&PoolStats::refused_allocations>(1);
  return false;
}

template <template <class> class Atom, class Placement>
std::size_t BasicBlockPool<Atom, Placement>::pop_stack(Shard& shard, std::span<std::uint32_t> out) {
  const std::size_t popped = shard.order.stack().pop(protocol_, out);
  for (const std::uint32_t block : out.first(popped)) protocol_.claim_owned(block);
  return popped;
}

template <template <class> class Atom, class Placement>
std::optional<std::uint64_t> BasicBlockPool<Atom, Placement>::sharing_changes() const noexcept {
  if (!options_.enable_stats) return std::nullopt;
  std::uint64_t sum = 0;
  for (const auto& shard : shards_) sum += shard->counters.sharing_changes();
  return sum;
}

/// One round over all places where free blocks stand: own stack, a shard that has fallen idle, other shards' surplus of
/// blank blocks, own order, and then whatever there is.
template <template <class> class Atom, class Placement>
template <class OnClaimed>
std::size_t BasicBlockPool<Atom, Placement>::collect_once(Shard& home, std::span<std::uint32_t> out, Collected& tally,
                                                          OnClaimed&& on_claimed) {
  std::size_t got = pop_stack(home, out);
  const auto steal_stacks = [&](std::int64_t above) {
    for (auto& shard : shards_) {
      if (got == out.size()) return;
      if (shard.get() == &home || shard->order.stack().count_hint() <= above) continue;
      const std::size_t popped = pop_stack(*shard, out.subspan(got));
      tally.stolen += popped;
      got += popped;
    }
  };
  const auto on_candidate = [&](std::uint32_t block) {
    index_.prefetch_erasure(protocol_.line(block).slot.load(std::memory_order_relaxed));  // [H]
  };
  const auto claim_rings = [&](Shard& shard) {
    const std::size_t before = got;
    for (const auto role : {Order::old_role, Order::mid_role, Order::young_role}) {
      if (got == out.size()) break;
      got += shard.order.claim(protocol_, role, out.subspan(got), tally.incidents, on_candidate, on_claimed);
    }
    return got - before;
  };
  if (got < out.size() && layout_.shards > 1) {
    if (const std::optional<std::uint32_t> idle = home.watch.idle(shards_, home.order.shard())) {
      Shard& other = *shards_[*idle];
      const std::size_t before = got;
      got += pop_stack(other, out.subspan(got));
      if (got < out.size()) claim_rings(other);
      tally.stolen += got - before;
      if (got == before) home.watch.used_up();
    }
    steal_stacks(num_blocks() / kIdleStack);
  }
  if (got < out.size()) claim_rings(home);
  if (got == out.size() || layout_.shards == 1) return got;
  for (auto& shard : shards_) {
    if (shard.get() != &home && got < out.size()) tally.stolen += claim_rings(*shard);
  }
  if (got < out.size()) steal_stacks(std::int64_t{-1} - num_blocks());  // a count is a hint: look at every stack
  return got;
}

template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::allocate(std::span<BlockId> out) {
  Shard& home = here();
  Collected tally;
  std::uint64_t evicted = 0;
  std::uint64_t rescans = 0;
  RemovedKeys removed;
  const auto on_claimed = [&](std::uint32_t block) {
    erase_keys(block, collector(removed));
    ++evicted;
  };
  std::array<std::uint32_t, 64> batch;
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t wanted = std::min(batch.size(), out.size() - done);
    const std::size_t got = collect_once(home, std::span(batch).first(wanted), tally, on_claimed);
    if (got == 0) ++rescans;
    for (std::size_t i = 0; i < got; ++i) out[done + i] = BlockId{batch[i]};
    done += got;
  }
  if (!removed.empty()) events_.append_removals(std::move(removed));
  home.counters.template add<&PoolStats::allocated_blocks>(out.size());
  home.counters.template add<&PoolStats::evicted_blocks>(evicted);
  home.counters.template add<&PoolStats::stolen_blocks>(tally.stolen);
  home.counters.template add<&PoolStats::rescans>(rescans);
  note(home.counters, tally.incidents);
}

template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::note(ShardCounters<Atom>& counters, const OrderIncidents& incidents) noexcept {
  counters.template add<&PoolStats::dead_slots>(incidents.dead_slots);
  counters.template add<&PoolStats::ring_full>(incidents.ring_full);
  counters.template add<&PoolFlows::ended_contents>(incidents.dropped_contents);
  counters.template add<&PoolStats::retries>(incidents.retries);
  counters.template add<&PoolStats::dropped_entries>(incidents.dropped);
  counters.template add<&PoolStats::moved_entries>(incidents.moved);
}

template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::note(const PinTally& tally) noexcept {
  ShardCounters<Atom>& counters = here().counters;
  counters.template add_visibly<&PoolFlows::shared_pins>(tally.pinned - tally.revived);
  counters.template add<&PoolFlows::revived_blocks>(tally.revived);
  counters.template add<&PoolFlows::unfenced_blocks>(tally.unfenced);
  counters.template add<&PoolStats::lost_pins>(tally.lost);
  counters.template add<&PoolStats::retries>(tally.retries);
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::get_new_blocks(std::span<BlockId> out) {
  const std::size_t count = std::min<std::size_t>(out.size(), num_blocks());  // more than all is refused as such
  if (!try_reserve(static_cast<std::uint32_t>(count))) return false;
  allocate(out);
  return true;
}

/// Whether every block can take a reference; if so, how many need a unit. What is listed twice is counted once if no
/// more than `apart` others stand in between. Needs no memory: who waits in the allocator may hold its lock.
template <template <class> class Atom, class Placement>
std::optional<std::uint64_t> BasicBlockPool<Atom, Placement>::units_to_touch(std::span<const BlockId> blocks,
                                                                             std::size_t apart) const {
  std::uint64_t units = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const BlockId block = blocks[i];
    if (!known(block, "touch")) return std::nullopt;
    if (block == kNullBlock) continue;
    const BlockState state = protocol_.state(block.value());
    if (state.refs() >= BlockState::kMaxRefs) {
      report(ContractBreach::ref_overflow, "touch", block);
      return std::nullopt;
    }
    if (state.refs() > 0 || state.fenced()) continue;
    const auto before = blocks.subspan(i - std::min(i, apart), std::min(i, apart));
    units += std::find(before.begin(), before.end(), block) == before.end() ? 1U : 0U;
  }
  return units;
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::touch(std::span<const BlockId> blocks) {
  Fences* const waiting = fences();
  if (waiting != nullptr) drain_fences(*waiting, kFencePortion, false);
  std::optional<std::uint64_t> needed = units_to_touch(blocks, kTouchApart);
  if (!needed) return false;
  if (!capacity_.reserve(*needed)) {
    if (waiting != nullptr) drain_fences(*waiting, num_blocks(), true);
    needed = units_to_touch(blocks, blocks.size());
    if (!needed || !capacity_.reserve(*needed)) return false;
  }
  std::uint64_t units = *needed;
  PinTally tally;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (touch_one(blocks[i].value(), units, tally) == Touch::done) continue;
    note(tally);
    // Another thread took or freed one of the blocks meanwhile: undo, so that nothing has changed.
    release(blocks.first(i), nullptr, [this](std::uint32_t freed) { capacity_.credit(freed); });
    capacity_.credit(units);
    return false;
  }
  note(tally);
  capacity_.credit(units);
  return true;
}

template <template <class> class Atom, class Placement>
typename BasicBlockPool<Atom, Placement>::Touch BasicBlockPool<Atom, Placement>::touch_one(std::uint32_t block,
                                                                                           std::uint64_t& units,
                                                                                           PinTally& tally) {
  if (block == kNullBlock.value()) return Touch::done;
  BlockState seen = protocol_.state(block);
  for (;;) {
    if (seen.refs() >= BlockState::kMaxRefs) return Touch::gone;
    const bool needs_unit = seen.refs() == 0 && !seen.fenced();
    if (needs_unit && units == 0) {
      if (!capacity_.reserve(1)) return Touch::no_capacity;
      ++units;
    }
    if (seen.blank_free()) {  // on a stack: it cannot be taken out of the middle by its state word
      if (!take_from_stacks(block, units)) return Touch::gone;
      tally.count(seen);
      --units;
      return Touch::done;
    }
    if (protocol_.try_reference(block, seen)) {
      tally.count(seen);
      if (needs_unit) --units;
      return Touch::done;
    }
    ++tally.retries;
  }
}

/// Takes one blank block out of whatever stack it is on, for a caller who has `units` reserved, at least one.
/// Blocks above it are popped and pushed back; each is covered by a reserved unit while it is in hand, so
/// nobody is made to wait. O(stack).
template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::take_from_stacks(std::uint32_t block, std::uint64_t units) {
  bool found = false;
  for (auto& shard : shards_) {
    typename Order::Stack& stack = shard->order.stack();
    typename Order::Stack::Chain above;
    std::uint64_t extra = 0;  // units held beside the caller's
    std::array<std::uint32_t, 1> popped{};
    while (!found) {
      if (above.size() + 1 > units + extra) {
        if (!capacity_.reserve(1)) break;
        ++extra;
      }
      if (stack.pop(protocol_, popped) == 0) break;
      found = popped[0] == block;
      if (!found) above.append(protocol_, popped[0]);
    }
    stack.push(protocol_, above);
    capacity_.credit(extra);
    if (found) {
      protocol_.reference_owned(block);
      return true;
    }
  }
  return false;
}

}  // namespace kvpool
