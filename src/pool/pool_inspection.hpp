// BasicBlockPool: what is where. Exact while nobody else works on the pool.
#pragma once

#include <set>
#include <string>

#include "pool/basic_block_pool.hpp"

namespace kvpool {

/// From the counters of the shards: what flowed in minus what flowed out.
template <template <class> class Atom, class Placement>
PoolCounts BasicBlockPool<Atom, Placement>::counts() const noexcept {
  if (!options_.enable_stats) return counted();
  PoolStats stats;
  PoolFlows flows;
  for (const auto& shard : shards_) {
    shard->counters.add_to(stats);
    shard->counters.add_to(flows);
  }
  PoolCounts counts;
  counts.usable = num_blocks() - 1;
  // Calls in progress may have counted an outflow whose inflow was read before: below zero is none.
  const auto within = [&](std::uint64_t difference) {
    return std::min(static_cast<std::int64_t>(difference) < 0 ? std::uint64_t{0} : difference, counts.usable);
  };
  counts.free = std::min(capacity_.free(), counts.usable);
  counts.cached = within(stats.published_keys - flows.further_keys + flows.moved_contents - stats.evicted_blocks -
                         flows.ended_contents);
  counts.referenced = within(stats.allocated_blocks + flows.revived_blocks - stats.released_blocks);
  counts.fenced = within(flows.fenced_blocks - flows.unfenced_blocks);
  counts.reserved = within(counts.usable - counts.free - counts.referenced - counts.fenced);
  return counts;
}

/// The same, read off the state words. O(blocks).
template <template <class> class Atom, class Placement>
PoolCounts BasicBlockPool<Atom, Placement>::counted() const noexcept {
  PoolCounts counts;
  counts.usable = num_blocks() - 1;
  std::uint64_t unreferenced = 0;
  for (std::uint32_t block = 1; block < num_blocks(); ++block) {
    const BlockState state = protocol_.state(block);
    counts.cached += state.hashed() ? 1U : 0U;
    counts.referenced += state.refs() > 0 ? 1U : 0U;
    counts.fenced += state.fenced() ? 1U : 0U;
    unreferenced += state.refs() == 0 && !state.fenced() ? 1U : 0U;
  }
  counts.free = std::min(capacity_.free(), counts.usable);
  counts.reserved = unreferenced > counts.free ? unreferenced - counts.free : 0;
  return counts;
}

template <template <class> class Atom, class Placement>
PoolStats BasicBlockPool<Atom, Placement>::stats() const noexcept {
  PoolStats sum;
  for (const auto& shard : shards_) shard->counters.add_to(sum);
  return sum;
}

template <template <class> class Atom, class Placement>
std::vector<PoolStats> BasicBlockPool<Atom, Placement>::shard_stats() const {
  std::vector<PoolStats> shards(shards_.size());
  for (std::size_t i = 0; i < shards_.size(); ++i) shards_[i]->counters.add_to(shards[i]);
  return shards;
}

template <template <class> class Atom, class Placement>
std::optional<BlockKey> BasicBlockPool<Atom, Placement>::primary_key(BlockId block) const {
  if (!known(block, "primary_key") || !protocol_.state(block.value()).hashed()) return std::nullopt;
  return protocol_.line(block.value()).load_key().key();
}

template <template <class> class Atom, class Placement>
std::int64_t BasicBlockPool<Atom, Placement>::covered_tokens(BlockId block) const {
  if (!known(block, "covered_tokens") || !protocol_.state(block.value()).hashed()) return 0;
  return static_cast<std::int64_t>(protocol_.line(block.value()).covered_tokens());
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::has_key(BlockId block, const BlockKey& key) const {
  return known(block, "has_key") && carries(block.value(), KeyWords(key), protocol_.state(block.value()));
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::is_block_writable(BlockId block) const noexcept {
  if (block == kNullBlock || block.value() >= num_blocks()) return false;
  const BlockState state = protocol_.state(block.value());
  return state.refs() == 1 && !state.hashed();
}

template <template <class> class Atom, class Placement>
std::uint32_t BasicBlockPool<Atom, Placement>::ref_count(BlockId block) const noexcept {
  return block.value() < num_blocks() ? protocol_.state(block.value()).refs() : 0;
}

template <template <class> class Atom, class Placement>
BlockHandle BasicBlockPool<Atom, Placement>::handle(BlockId block) const noexcept {
  if (block.value() >= num_blocks()) return {block, 0, number_};
  return handle_of(block.value(), protocol_.state(block.value()));
}

template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::append_event(KVEvent event) {
  if (options_.enable_events) events_.append(std::move(event), lane());
}

template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::append_event(EventDraft&& draft) {
  if (options_.enable_events) events_.append(std::move(draft));
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::reset_prefix_cache(std::uint32_t num_permanent) {
  if (Fences* const waiting = fences(); waiting != nullptr) drain_fences(*waiting, num_blocks(), true);
  if (capacity_.free() + num_permanent != num_blocks() - 1) return false;
  std::uint64_t ended = 0;
  for (std::uint32_t block = 1; block < num_blocks(); ++block) ended += take_content(block, nullptr) ? 1U : 0U;
  here().counters.template add<&PoolFlows::ended_contents>(ended);
  index_.clear();
  if (options_.enable_events) events_.append(AllBlocksClearedEvent{}, lane());
  return true;
}

template <template <class> class Atom, class Placement>
BlockSnapshot BasicBlockPool<Atom, Placement>::snapshot(BlockId block) const {
  BlockSnapshot shot;
  shot.id = block;
  if (!known(block, "snapshot")) return shot;
  const BlockState state = protocol_.state(block.value());
  shot.ref_count = state.refs();
  shot.generation = state.generation();
  shot.primary_key = primary_key(block);
  shot.covered_tokens = covered_tokens(block);
  shot.is_null = block == kNullBlock;
  shot.fenced = state.fenced();
  shot.free = !shot.is_null && state.refs() == 0 && !state.fenced();
  return shot;
}

template <template <class> class Atom, class Placement>
std::vector<BlockId> BasicBlockPool<Atom, Placement>::free_order() const {
  std::vector<BlockId> order;
  const auto add = [&order](std::uint32_t block) { order.emplace_back(block); };
  for (const auto& shard : shards_) shard->order.stack().for_each(protocol_, add);
  for (const auto& shard : shards_) shard->order.for_each_live(protocol_, add);
  return order;
}

/// Secondary keys of a block, in the order of their registration.
template <template <class> class Atom, class Placement>
std::vector<KeyWords> BasicBlockPool<Atom, Placement>::secondary_keys(std::uint32_t block) const {
  std::vector<KeyWords> keys;
  const Secondaries* const store = secondaries();
  if (store == nullptr) return keys;
  const std::uint32_t version = protocol_.line(block).version.load(std::memory_order_acquire);  // [K2]
  for (std::uint32_t at = store->first(block); at != Secondaries::kNone; at = store->next(at)) {
    const auto view = store->read(at);
    if (!view || view->block != block) break;  // recycled under our eyes: the block has lost its content
    if (view->version == version) keys.push_back(view->key);
  }
  std::reverse(keys.begin(), keys.end());
  return keys;
}

/// How many keys of a block stand outside their home bucket.
template <template <class> class Atom, class Placement>
std::uint64_t BasicBlockPool<Atom, Placement>::keys_elsewhere(std::uint32_t block) const {
  const auto& line = protocol_.line(block);
  std::uint64_t keys = index_.is_elsewhere(line.slot.load(std::memory_order_relaxed)) ? 1U : 0U;  // [K2]
  const Secondaries* const store = secondaries();
  if (store == nullptr) return keys;
  for (std::uint32_t at = store->first(block); at != Secondaries::kNone; at = store->next(at)) {
    keys += index_.is_elsewhere(store->slot(at)) ? 1U : 0U;
  }
  return keys;
}

template <template <class> class Atom, class Placement>
std::size_t BasicBlockPool<Atom, Placement>::num_cached_keys() const {
  std::set<BlockKey> keys;
  for (std::uint32_t block = 1; block < num_blocks(); ++block) {
    if (!protocol_.state(block).hashed()) continue;
    keys.insert(protocol_.line(block).load_key().key());
    for (const KeyWords& key : secondary_keys(block)) keys.insert(key.key());
  }
  return keys.size();
}

template <template <class> class Atom, class Placement>
Status BasicBlockPool<Atom, Placement>::check_invariants() const {
  const auto broken = [](const std::string& what) { return Status(ErrorCode::internal, what); };
  std::vector<std::uint32_t> places(num_blocks(), 0);
  for (const BlockId block : free_order()) ++places[block.value()];
  std::uint64_t unreferenced = 0;
  std::uint64_t entries = 0;
  std::uint64_t elsewhere = 0;
  for (std::uint32_t block = 0; block < num_blocks(); ++block) {
    const BlockState state = protocol_.state(block);
    const bool is_free = block != 0 && state.refs() == 0 && !state.fenced();
    if (places[block] != (is_free ? 1U : 0U)) {
      return broken("block " + std::to_string(block) + " has " + std::to_string(places[block]) +
                    " places in the free order and " + std::to_string(state.refs()) + " references");
    }
    if (state.writing() || (state.in_order() && state.refs() > 0) || (block == 0 && state.word() != 0)) {
      return broken("block " + std::to_string(block) + " has an impossible state word");
    }
    unreferenced += is_free ? 1U : 0U;
    if (!state.hashed()) continue;
    const auto& line = protocol_.line(block);
    const KeyWords key = line.load_key();
    const auto entry = index_.at(line.slot.load(std::memory_order_relaxed));  // [K2]
    if (!entry || entry->value != block || entry->fingerprint != index_.fingerprint_of(key.mixed())) {
      return broken("block " + std::to_string(block) + " answers for a key that the index does not lead to it");
    }
    const std::vector<KeyWords> further = secondary_keys(block);
    entries += 1 + further.size();
    elsewhere += keys_elsewhere(block);
    for (const KeyWords& other : further) {
      if (!carries(block, other, state)) {
        return broken("block " + std::to_string(block) + " has a secondary key that the index does not find");
      }
    }
  }
  if (index_.num_entries() != entries) {
    return broken("the index has " + std::to_string(index_.num_entries()) + " entries for " + std::to_string(entries) +
                  " keys");
  }
  if (index_.num_overflowed() != elsewhere) {
    return broken("buckets count " + std::to_string(index_.num_overflowed()) + " entries outside them, there are " +
                  std::to_string(elsewhere));
  }
  const PoolCounts now = counts();
  const PoolCounts words = counted();
  if (now.cached != words.cached || now.referenced != words.referenced || now.fenced != words.fenced ||
      now.reserved != words.reserved) {
    return broken("the counters say cached " + std::to_string(now.cached) + ", referenced " +
                  std::to_string(now.referenced) + ", fenced " + std::to_string(now.fenced) + ", reserved " +
                  std::to_string(now.reserved) + "; the state words " + std::to_string(words.cached) + ", " +
                  std::to_string(words.referenced) + ", " + std::to_string(words.fenced) + ", " +
                  std::to_string(words.reserved));
  }
  if (capacity_.free() > unreferenced) {
    return broken(std::to_string(capacity_.free()) + " blocks are promised as free, " + std::to_string(unreferenced) +
                  " are");
  }
  return {};
}

}  // namespace kvpool
