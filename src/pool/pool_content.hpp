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

/// Three stages per element, each a few elements ahead of the next: load the bucket, load the line of the
/// first candidate, compare.
template <template <class> class Atom, class Placement>
std::size_t BasicBlockPool<Atom, Placement>::find_prefix(HashChain chain, GroupId group,
                                                         std::span<BlockHandle> out) const {
  constexpr std::size_t kBucketsAhead = 16;
  constexpr std::size_t kLinesAhead = 8;
  const std::size_t length = std::min(chain.size(), out.size());
  if (length == 0) return 0;
  std::array<KeyWords, kBucketsAhead> keys;
  std::array<std::uint64_t, kBucketsAhead> hashes;
  std::size_t bucket = 0;
  std::size_t line = 0;
  for (std::size_t i = 0; i < length; ++i) {
    // The first element is looked up alone: many chains end there, and loads ahead would be for nothing.
    const std::size_t bucket_end = i == 0 ? 1 : std::min(length, i + kBucketsAhead);
    for (; bucket < bucket_end; ++bucket) {
      keys[bucket % kBucketsAhead] = KeyWords(BlockKey{chain[bucket], group});
      hashes[bucket % kBucketsAhead] = keys[bucket % kBucketsAhead].mixed();
      index_.prefetch(hashes[bucket % kBucketsAhead]);
    }
    const std::size_t line_end = i == 0 ? 0 : std::min(length, i + kLinesAhead);
    for (line = std::max(line, i); line < line_end; ++line) {
      index_.for_each_match(hashes[line % kBucketsAhead], [&](std::uint32_t value) {
        if (value < num_blocks()) __builtin_prefetch(&protocol_.line(value));
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
bool BasicBlockPool<Atom, Placement>::carries(std::uint32_t block, const KeyWords& key, BlockState state) const {
  if (!state.hashed()) return false;
  if (protocol_.line(block).has_key(key)) return true;
  if (secondaries() == nullptr) return false;
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
  if (block.is_null()) return true;
  if (block.pool != number_) {
    report(ContractBreach::foreign_handle, "pin", block.id);
    return false;
  }
  if (!known(block.id, "pin")) return false;
  const std::uint32_t number = block.id.value();
  const KeyWords words(key);
  BlockState seen = protocol_.state(number);
  for (;;) {
    if (seen.generation() != block.generation || !carries(number, words, seen)) break;
    if (seen.refs() >= BlockState::kMaxRefs) return false;
    const bool needs_unit = seen.refs() == 0 && !seen.fenced();
    if (needs_unit && units == 0) return false;
    if (!protocol_.try_reference(number, seen)) continue;
    if (needs_unit) --units;
    // The key may have changed between the comparison and the exchange without a trace in the state word:
    // compare once more, now that the block cannot be recycled.
    if (carries(number, words, protocol_.state(number))) return true;
    const std::array<BlockId, 1> undo{block.id};
    std::uint32_t uncredited = 0;
    release(undo, nullptr, uncredited);
    if (!needs_unit) {
      capacity_.credit(uncredited);
    } else if (uncredited > 0 || capacity_.reserve(1)) {
      ++units;
    }
    break;
  }
  here().counters.template add<&PoolStats::lost_pins>(1);
  return false;
}

// --- registration --------------------------------------------------------------------------------------

template <template <class> class Atom, class Placement>
typename BasicBlockPool<Atom, Placement>::Copies BasicBlockPool<Atom, Placement>::copies(const KeyWords& key,
                                                                                         std::uint64_t hash) const {
  Copies result;
  index_.for_each_match(hash, [&](std::uint32_t value) {
    const Match candidate = match_value(value, key);
    if (candidate.found) {
      result.any = true;
      result.next_ordinal = std::max(result.next_ordinal, candidate.ordinal + 1);
    }
    return false;
  });
  return result;
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::publish(BlockId block, const BlockKey& key, std::int64_t covered_tokens) {
  if (!options_.enable_caching || block == kNullBlock || !known(block, "publish")) return false;
  if (key.group.value() > KeyWords::kMaxGroup) return false;
  const std::uint64_t covered = covered_tokens > 0 ? static_cast<std::uint64_t>(covered_tokens) : 0;
  const Registered outcome =
      register_key(block.value(), KeyWords(key), covered, options_.duplicates == DuplicatePolicy::keep);
  ShardCounters<Atom>& counters = here().counters;
  counters.template add<&PoolStats::duplicate_keys>(outcome.duplicate ? 1 : 0);
  counters.template add<&PoolStats::published_keys>(outcome.done && outcome.secondary ? 1 : 0);
  return outcome.done;
}

template <template <class> class Atom, class Placement>
typename BasicBlockPool<Atom, Placement>::Registered BasicBlockPool<Atom, Placement>::register_key(
    std::uint32_t block, const KeyWords& key, std::uint64_t covered, bool keep_duplicate) {
  Registered outcome;
  const BlockState seen = protocol_.state(block);
  if (seen.refs() == 0 || (seen.hashed() && carries(block, key, seen))) return outcome;
  const std::uint32_t version = protocol_.line(block).version.load(std::memory_order_acquire);  // [K2]
  const std::uint64_t hash = key.mixed();
  const Copies others = copies(key, hash);
  outcome.duplicate = others.any;
  outcome.secondary = seen.hashed();
  if (others.any && !keep_duplicate) return outcome;
  outcome.done = outcome.secondary ? register_secondary(block, key, hash, others.next_ordinal, version)
                                   : register_primary(block, key, hash, covered, others.next_ordinal);
  return outcome;
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::register_primary(std::uint32_t block, const KeyWords& key, std::uint64_t hash,
                                                       std::uint64_t covered, std::uint64_t ordinal) {
  if (!protocol_.begin_writing(block)) return false;
  auto& line = protocol_.line(block);
  // Versions add up to the number of published primary keys, which spares the hot path a counter.
  const std::uint32_t version = line.version.load(std::memory_order_relaxed) + 1;  // [K1] the writer's own
  line.version.store(version, std::memory_order_release);                          // [K1]
  line.store_key(key, covered, ordinal);
  const auto slot = index_.insert(hash, block);
  if (slot) {
    line.slot.store(*slot, std::memory_order_relaxed);  // [K1]
    if (protocol_.publish(block, codec_.registration(version))) return true;
    index_.erase(hash, *slot);
  }
  protocol_.end_writing(block);
  ShardCounters<Atom>& counters = here().counters;
  counters.template add<&PoolStats::index_full>(slot ? 0 : 1);
  counters.template add<&PoolStats::published_keys>(kMinusOne);
  return false;
}

/// A further key for a block that has a primary one. `version` is the registration the key joins; if that
/// one ends before the record hangs in the block's list, whoever sees it last removes the record.
template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::register_secondary(std::uint32_t block, const KeyWords& key, std::uint64_t hash,
                                                         std::uint64_t ordinal, std::uint32_t version) {
  Secondaries& store = install_secondaries();
  const auto number = store.acquire();
  if (!number) return false;
  store.fill(*number, {key, block, version, ordinal});
  const auto slot = index_.insert(hash, num_blocks() + *number);
  if (!slot) {
    store.release(*number);
    here().counters.template add<&PoolStats::index_full>(1);
    return false;
  }
  store.set_slot(*number, *slot);
  store.link(block, *number);
  const auto ended = [&] {
    return !protocol_.state(block).hashed() ||
           protocol_.line(block).version.load(std::memory_order_acquire) != version;  // [K2]
  };
  bool twin = false;  // another holder of the block added the same key at the same time
  for (std::uint32_t at = store.next(*number); at != Secondaries::kNone && !twin; at = store.next(at)) {
    const auto view = store.read(at);
    if (!view || view->block != block) break;
    twin = view->key == key && view->version == version;
  }
  if (!twin && !ended()) return true;
  RemovedKeys removed;
  sweep_secondaries(store, block, collector(removed));
  events_.append_removals(std::move(removed));
  return !twin && !ended();
}

template <template <class> class Atom, class Placement>
typename BasicBlockPool<Atom, Placement>::Secondaries& BasicBlockPool<Atom, Placement>::install_secondaries() {
  Secondaries* current = secondaries();
  if (current != nullptr) return *current;
  auto fresh = std::make_unique<Secondaries>(num_blocks());
  if (secondaries_.compare_exchange_strong(current, fresh.get(), std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {  // [L1]
    return *fresh.release();
  }
  return *current;
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
  index_.erase(primary.mixed(), slot);
  note_removal(primary, removed);
  Secondaries* const store = secondaries();
  if (store != nullptr) sweep_secondaries(*store, block, removed);
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
      index_.erase(view->key.mixed(), store.slot(number));
      if (!twin) note_removal(view->key, removed);
      store.release(number);
    }
    for (const auto& k : kept) {
      again = again || !protocol_.state(block).hashed() ||
              protocol_.line(block).version.load(std::memory_order_acquire) != k.version;  // [K2]
    }
  }
}

/// Ends the content of a block, wherever it stands. `removed` empty: nothing is announced.
template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::take_content(std::uint32_t block, RemovedKeys* removed) {
  const auto& line = protocol_.line(block);
  BlockState seen = protocol_.state(block);
  while (seen.hashed()) {
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
  events_.append_removals(std::move(removed));
  return had;
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::evict_blocks(std::span<const BlockId> blocks) {
  bool good = true;
  RemovedKeys removed;
  for (const BlockId block : blocks) {
    if (known(block, "evict_blocks")) {
      take_content(block.value(), collector(removed));
    } else {
      good = false;
    }
  }
  events_.append_removals(std::move(removed));
  return good;
}

template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::move_block_hashes(BlockId source, BlockId target) {
  if (source == target || !known(source, "move_block_hashes") || !known(target, "move_block_hashes")) return;
  if (!protocol_.state(source.value()).hashed()) return;
  const auto& line = protocol_.line(source.value());
  const KeyWords primary = line.load_key();
  const std::uint64_t covered = line.covered_tokens();
  const std::vector<KeyWords> further = secondary_keys(source.value());
  // The target answers before the source stops, so that a look-up never misses in between.
  if (!register_key(target.value(), primary, covered, true).done) return;
  here().counters.template add<&PoolStats::published_keys>(kMinusOne);  // nothing was published, it only moved
  for (const KeyWords& key : further) static_cast<void>(register_key(target.value(), key, 0, true));
  take_content(source.value(), nullptr);
}

}  // namespace kvpool
