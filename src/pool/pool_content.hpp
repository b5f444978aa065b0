// BasicBlockPool: keys of blocks, look-up, match-and-pin.
#pragma once

#include "pool/basic_block_pool.hpp"

namespace kvpool {

// --- look-up -------------------------------------------------------------------------------------------

/// What an index entry leads to, if that block answers for `key`. Values from num_blocks on are records of
/// secondary keys.
template <template <class> class Atom, class Placement>
typename BasicBlockPool<Atom, Placement>::Match BasicBlockPool<Atom, Placement>::match_value(
    std::uint32_t value, const KeyWords& key) const {
  if (value < num_blocks()) {
    const auto& line = protocol_.line(value);
    const BlockState state = protocol_.state(value);
    if (!state.hashed() || !line.has_key(key)) return {};
    return {handle_of(value, state), line.ordinal(), true};
  }
  const Secondaries* const store = secondaries();
  const auto view = store->read(value - num_blocks());
  if (!view || view->key != key) return {};
  const BlockState state = protocol_.state(view->block);
  if (!state.hashed() ||
      protocol_.line(view->block).version.load(std::memory_order_acquire) != view->version) {  // [K2]
    return {};
  }
  return {handle_of(view->block, state), view->ordinal, true};
}

/// The earliest registration among the blocks that answer for `key`.
template <template <class> class Atom, class Placement>
typename BasicBlockPool<Atom, Placement>::Match BasicBlockPool<Atom, Placement>::match(const KeyWords& key,
                                                                                       std::uint64_t hash) const {
  Match best;
  index_.for_each_match(hash, [&](std::uint32_t value) {
    const Match candidate = match_value(value, key);
    if (candidate.found && (!best.found || candidate.ordinal < best.ordinal)) best = candidate;
    return best.found && best.ordinal == 0;  // nothing can be earlier
  });
  return best;
}

template <template <class> class Atom, class Placement>
std::optional<BlockHandle> BasicBlockPool<Atom, Placement>::find(const BlockKey& key) const {
  const KeyWords words(key);
  const Match found = match(words, words.mixed());
  if (!found.found) return std::nullopt;
  return found.handle;
}

/// Four stages per element, each a few elements ahead of the next: load the digest, load the bucket, load the line of
/// the first candidate, compare.
template <template <class> class Atom, class Placement>
std::size_t BasicBlockPool<Atom, Placement>::find_prefix(HashChain chain, GroupId group,
                                                         std::span<BlockHandle> out) const {
  constexpr std::size_t kDigestsAhead = 24;
  constexpr std::size_t kBucketsAhead = 16;
  constexpr std::size_t kLinesAhead = 8;
  const std::size_t length = std::min(chain.size(), out.size());
  if (length == 0) return 0;
  std::array<KeyWords, kBucketsAhead> keys;
  std::array<std::uint64_t, kBucketsAhead> hashes;
  std::size_t bucket = 0;
  std::size_t line = 0;
  std::size_t digest = 0;
  for (std::size_t i = 0; i < length; ++i) {
    // Few loads run ahead of the first element, at which many chains end: what is done for them fits into the time
    // that its own bucket takes.
    const std::size_t reach = i == 0 ? 2 : 1;
    for (const std::size_t end = std::min(length, i + (kDigestsAhead / reach)); digest < end; ++digest) {
      prefetch_to_read(&chain[digest]);
    }
    const std::size_t bucket_end = std::min(length, i + (kBucketsAhead / reach));
    for (; bucket < bucket_end; ++bucket) {
      keys[bucket % kBucketsAhead].assign(chain[bucket], group);
      hashes[bucket % kBucketsAhead] = keys[bucket % kBucketsAhead].mixed();
      index_.prefetch(hashes[bucket % kBucketsAhead]);
    }
    const std::size_t line_end = std::min(length, i + (kLinesAhead / reach));
    for (line = std::max(line, i); line < line_end; ++line) {
      index_.for_each_match(hashes[line % kBucketsAhead], [&](std::uint32_t value) {
        if (value < num_blocks()) prefetch_to_read(&protocol_.line(value));
        return true;
      });
    }
    const Match found = match(keys[i % kBucketsAhead], hashes[i % kBucketsAhead]);
    if (!found.found) return i;
    out[i] = found.handle;
  }
  return length;
}

template <template <class> class Atom, class Placement>
[[gnu::always_inline]] inline bool BasicBlockPool<Atom, Placement>::carries(std::uint32_t block, const KeyWords& key,
                                                                            BlockState state) const {
  if (!state.hashed()) return false;
  return protocol_.line(block).has_key(key) || (secondaries() != nullptr && carries_besides(block, key));
}

/// Whether one of the block's secondary keys is `key`.
template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::carries_besides(std::uint32_t block, const KeyWords& key) const {
  bool found = false;
  index_.for_each_match(key.mixed(), [&](std::uint32_t value) {
    if (value < num_blocks()) return false;
    const Match candidate = match_value(value, key);
    found = candidate.found && candidate.handle.id.value() == block;
    return found;
  });
  return found;
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::pin(BlockHandle block, const BlockKey& key, std::uint32_t& units) {
  PinTally tally;
  const bool pinned = pin_one(block, KeyWords(key), units, tally);
  note(tally);
  return pinned;
}

template <template <class> class Atom, class Placement>
std::size_t BasicBlockPool<Atom, Placement>::pin_prefix(std::span<const BlockHandle> blocks, HashChain chain,
                                                        GroupId group, std::uint32_t& units) {
  const std::size_t length = std::min(blocks.size(), chain.size());
  for (const BlockHandle& block : blocks.first(length)) {
    if (block.id.value() < num_blocks()) protocol_.prefetch(block.id.value());
  }
  PinTally tally;
  std::size_t pinned = 0;
  while (pinned < length && pin_one(blocks[pinned], KeyWords(chain[pinned], group), units, tally)) ++pinned;
  note(tally);
  return pinned;
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::pin_one(BlockHandle block, const KeyWords& words, std::uint32_t& units,
                                              PinTally& tally) {
  if (block.is_null()) return true;
  if (block.pool != number_) {
    report(ContractBreach::foreign_handle, "pin", block.id);
    return false;
  }
  if (!known(block.id, "pin")) return false;
  const std::uint32_t number = block.id.value();
  BlockState seen = protocol_.state(number);
  for (;;) {
    if (seen.generation() != block.generation || !carries(number, words, seen)) break;
    if (seen.refs() >= BlockState::kMaxRefs) return false;
    const bool needs_unit = seen.refs() == 0 && !seen.fenced();
    if (needs_unit && units == 0) return false;
    if (!protocol_.try_reference(number, seen)) {
      ++tally.retries;
      continue;
    }
    tally.count(seen);
    if (needs_unit) --units;
    // The key may have changed between the comparison and the exchange without a trace in the state word:
    // compare once more, now that the block cannot be recycled.
    if (carries(number, words, protocol_.state(number))) return true;
    const std::array<BlockId, 1> undo{block.id};
    release(std::span<const BlockId>(undo), nullptr, [&](std::uint32_t freed) {
      if (!needs_unit) {
        capacity_.credit(freed);
      } else if (freed > 0 || capacity_.reserve(1)) {
        ++units;
      }
    });
    break;
  }
  ++tally.lost;
  return false;
}

// --- the end of content --------------------------------------------------------------------------------

/// One removal per key; with RemovalEvents::last_copy only if no other block answers for it now.
template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::note_removal(const KeyWords& key, RemovedKeys* removed) const {
  if (removed == nullptr) return;
  if (options_.removal_events == RemovalEvents::last_copy && match(key, key.mixed()).found) return;
  removed->push_back(key);
}

/// Erases what led to a block whose content this thread has ended.
template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::erase_keys(std::uint32_t block, const KeyWords& primary, std::uint32_t slot,
                                                 RemovedKeys* removed) {
  index_.erase_at(slot, [&] { return primary.mixed(); });
  note_removal(primary, removed);
  Secondaries* const store = secondaries();
  if (store != nullptr) sweep_secondaries(*store, block, removed);
}

/// The same for a block that belongs to this thread: its line still says what led to it.
template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::erase_keys(std::uint32_t block, RemovedKeys* removed) {
  const auto& line = protocol_.line(block);
  erase_keys(block, line.load_key(), line.slot.load(std::memory_order_relaxed), removed);  // [K2]
}

/// Removes the records of a block whose registration has ended, and one of two records with the same key.
/// Records that are still valid hang in the list again afterwards; if their registration ends meanwhile,
/// another round removes them.
template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::sweep_secondaries(Secondaries& store, std::uint32_t block, RemovedKeys* removed) {
  for (bool again = true; again;) {
    again = false;
    std::vector<std::uint32_t> records;
    for (std::uint32_t at = store.detach(block); at != Secondaries::kNone; at = store.next(at)) records.push_back(at);
    std::reverse(records.begin(), records.end());  // oldest first
    std::vector<KeptKey> kept;
    for (const std::uint32_t number : records) {
      const auto view = store.read(number);
      const bool valid = protocol_.state(block).hashed() &&
                         protocol_.line(block).version.load(std::memory_order_acquire) == view->version;  // [K2]
      const bool twin = std::any_of(kept.begin(), kept.end(), [&](const auto& k) { return k.key == view->key; });
      if (valid && !twin) {
        kept.push_back({view->key, view->version});
        store.link(block, number);
        continue;
      }
      index_.erase_at(store.slot(number), [&] { return view->key.mixed(); });
      if (!twin) note_removal(view->key, removed);
      store.release(number);
    }
    for (const auto& k : kept) {
      again = again || !protocol_.state(block).hashed() ||
              protocol_.line(block).version.load(std::memory_order_acquire) != k.version;  // [K2]
    }
  }
}

/// Ends the content of a block, wherever it stands; with `only`, that of the registration under this ticket and no
/// later one, which a holder of the block can tell. `removed` empty: nothing is announced.
template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::take_content(std::uint32_t block, RemovedKeys* removed,
                                                   std::optional<std::uint32_t> only) {
  const auto& line = protocol_.line(block);
  BlockState seen = protocol_.state(block);
  while (answers_under(seen, only.value_or(seen.ticket()))) {
    const KeyWords primary = line.load_key();
    const std::uint32_t slot = line.slot.load(std::memory_order_relaxed);  // [K2]
    if (!protocol_.try_unpublish(block, seen)) continue;
    erase_keys(block, primary, slot, removed);
    return true;
  }
  return false;
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::unpublish(BlockId block) {
  if (!known(block, "unpublish")) return false;
  RemovedKeys removed;
  const bool had = take_content(block.value(), collector(removed));
  here().counters.template add<&PoolFlows::ended_contents>(had ? 1 : 0);
  events_.append_removals(std::move(removed));
  return had;
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::evict_blocks(std::span<const BlockId> blocks) {
  bool good = true;
  std::uint64_t ended = 0;
  RemovedKeys removed;
  for (const BlockId block : blocks) {
    if (known(block, "evict_blocks")) {
      ended += take_content(block.value(), collector(removed)) ? 1U : 0U;
    } else {
      good = false;
    }
  }
  here().counters.template add<&PoolFlows::ended_contents>(ended);
  events_.append_removals(std::move(removed));
  return good;
}

/// The target answers before the source stops: at no moment nobody does. Who ends the source's registration meanwhile
/// ends the keys for good, so that they are taken away from the target again.
template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::move_block_hashes(BlockId source, BlockId target) {
  if (source == target || !known(source, "move_block_hashes") || !known(target, "move_block_hashes")) return false;
  const BlockState from = protocol_.state(source.value());
  const BlockState to = protocol_.state(target.value());
  if (!from.hashed() || to.refs() == 0 || to.hashed()) return false;
  const auto& line = protocol_.line(source.value());
  const Registration primary(line.load_key(), static_cast<std::int64_t>(line.covered_tokens()), target.value());
  const std::vector<KeyWords> further = secondary_keys(source.value());
  if (!answers_under(protocol_.state(source.value()), from.ticket())) return false;  // read from two registrations
  PublishTally moved;
  const std::uint64_t ordinal = copies(primary.key, primary.hash).next_ordinal;
  if (!register_primary(primary, to, ordinal, index_.survey(primary.hash).empty_slot, moved)) return false;
  for (const KeyWords& key : further) {
    const Registration next(key, 0, target.value());
    static_cast<void>(register_secondary(next, copies(key, next.hash).next_ordinal, moved.version, moved));
  }
  const bool done = take_content(source.value(), nullptr, from.ticket());
  bool withdrawn = false;
  if (!done) {
    // With `last_copy` the other one may have seen the target's copy and announced nothing.
    RemovedKeys removed;
    const bool may_be_last = options_.removal_events == RemovalEvents::last_copy;
    withdrawn =
        take_content(target.value(), may_be_last ? collector(removed) : nullptr, codec_.registration(moved.version));
    events_.append_removals(std::move(removed));
  }
  ShardCounters<Atom>& counters = here().counters;
  counters.template add<&PoolFlows::moved_contents>(1);
  counters.template add<&PoolFlows::ended_contents>(done || withdrawn ? 1 : 0);
  note(moved);
  return done;
}

}  // namespace kvpool
