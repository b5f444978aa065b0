// BasicBlockPool: how blocks come to answer for keys.
#pragma once

#include "pool/basic_block_pool.hpp"

namespace kvpool {

template <template <class> class Atom, class Placement>
typename BasicBlockPool<Atom, Placement>::Copies BasicBlockPool<Atom, Placement>::copies(const KeyWords& key,
                                                                                         std::uint64_t hash,
                                                                                         std::uint32_t except) const {
  Copies result;
  index_.for_each_match(hash, [&](std::uint32_t value) {
    const Match candidate = match_value(value, key);
    if (candidate.found && value != except) {
      result.any = true;
      result.next_ordinal = std::max(result.next_ordinal, candidate.ordinal + 1);
    }
    return false;
  });
  return result;
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::publish(BlockId block, const BlockKey& key, std::int64_t covered_tokens) {
  if (!accepts(key.group) || block == kNullBlock || !known(block, "publish")) return false;
  PublishTally tally;
  register_key(Registration(KeyWords(key), covered_tokens, block.value()), options_.duplicates == DuplicatePolicy::keep,
               tally);
  note(tally);
  return tally.published > 0;
}

/// In portions, of which the next is prepared before the present one is registered: what a registration reads and
/// writes has been asked for a portion ago, and keys are mixed without an exchange in between.
template <template <class> class Atom, class Placement>
std::size_t BasicBlockPool<Atom, Placement>::publish_chain(std::span<const BlockId> blocks, HashChain chain,
                                                           GroupId group, std::int64_t tokens_before,
                                                           std::int64_t block_tokens) {
  constexpr std::size_t kPortion = 8;
  if (!accepts(group)) return 0;
  const std::size_t length = std::min(blocks.size(), chain.size());
  const bool keep_duplicates = options_.duplicates == DuplicatePolicy::keep;
  std::array<std::array<Registration, kPortion>, 2> portions;
  std::size_t prepared = 0;
  std::int64_t covered = tokens_before;
  const auto prepare = [&](std::array<Registration, kPortion>& portion) {
    std::size_t count = 0;
    for (; prepared < length && count < kPortion; ++prepared) {
      covered += block_tokens;
      const BlockId block = blocks[prepared];
      if (block == kNullBlock || !known(block, "publish")) continue;
      Registration& next = portion[count++];
      next.assign(chain[prepared], group, covered, block.value());
      index_.prefetch_insertion(next.hash);
      protocol_.prefetch(next.block);
    }
    return count;
  };
  PublishTally tally;
  std::size_t count = 0;
  for (std::size_t turn = 0;; ++turn) {
    const std::size_t following = prepare(portions[turn % 2]);
    for (const Registration& next : std::span(portions[(turn + 1) % 2]).first(count)) {
      register_key(next, keep_duplicates, tally);
    }
    if (following == 0) break;
    count = following;
  }
  note(tally);
  return static_cast<std::size_t>(tally.published);
}

template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::accepts(GroupId group) const noexcept {
  return options_.enable_caching && group.value() <= KeyWords::kMaxGroup;
}

template <template <class> class Atom, class Placement>
void BasicBlockPool<Atom, Placement>::note(const PublishTally& tally) noexcept {
  ShardCounters<Atom>& counters = here().counters;
  counters.template add<&PoolStats::published_keys>(tally.published);
  counters.template add<&PoolFlows::further_keys>(tally.further);
  counters.template add<&PoolStats::duplicate_keys>(tally.duplicates);
  counters.template add<&PoolStats::index_full>(tally.index_full);
  counters.note_probe(tally.longest_probe);
}

// The steps of one registration are inlined into the loop over a chain: what lies between its two exchanges is exposed
// to the caller in full.
template <template <class> class Atom, class Placement>
[[gnu::always_inline]] inline void BasicBlockPool<Atom, Placement>::register_key(const Registration& next,
                                                                                 bool keep_duplicates,
                                                                                 PublishTally& tally) {
  const BlockState seen = protocol_.state(next.block);
  if (seen.refs() == 0 || (seen.hashed() && carries(next.block, next.key, seen))) return;
  const std::uint32_t version = protocol_.line(next.block).version.load(std::memory_order_acquire);  // [K2]
  const typename PrefixIndex<Atom>::Survey bucket = index_.survey(next.hash);
  const Copies others = bucket.may_match ? copies(next.key, next.hash) : Copies{};
  tally.duplicates += others.any ? 1U : 0U;
  if (others.any && !keep_duplicates) return;
  const bool done = seen.hashed() ? register_secondary(next, others.next_ordinal, version, tally)
                                  : register_primary(next, seen, others.next_ordinal, bucket.empty_slot, tally);
  if (!done) return;
  // Another thread may have asked when neither of the two was there yet. Whoever sees a second copy behind its own
  // publication withdraws its own: both may, but no two stay.
  if (!keep_duplicates && !seen.hashed() && copies(next.key, next.hash, next.block).any &&
      take_content(next.block, nullptr, codec_.registration(tally.version))) {
    ++tally.duplicates;
    return;
  }
  ++tally.published;
  tally.further += seen.hashed() ? 1U : 0U;
}

template <template <class> class Atom, class Placement>
[[gnu::always_inline]] inline bool BasicBlockPool<Atom, Placement>::register_primary(
    const Registration& next, BlockState seen, std::uint64_t ordinal, std::uint32_t home_slot, PublishTally& tally) {
  if (!protocol_.begin_writing(next.block, seen)) return false;
  auto& line = protocol_.line(next.block);
  const std::uint32_t version = line.version.load(std::memory_order_relaxed) + 1;  // [K1] the writer's own
  line.version.store(version, std::memory_order_release);                          // [K1]
  line.store_key(next.key, next.covered, ordinal);
  const std::uint32_t slot = index_.insert(next.hash, next.block, home_slot);
  const bool entered = slot != PrefixIndex<Atom>::kNoPosition;
  if (entered) {
    tally.longest_probe = std::max<std::uint64_t>(tally.longest_probe, index_.distance_of(next.hash, slot));
    line.slot.store(slot, std::memory_order_relaxed);  // [K1]
    tally.version = version;
    if (protocol_.publish(next.block, codec_.registration(version), seen)) return true;
    index_.erase(next.hash, slot);
  }
  protocol_.end_writing(next.block);
  tally.index_full += entered ? 0U : 1U;
  return false;
}

/// A further key for a block that has a primary one. `version` is the registration the key joins; if that
/// one ends before the record hangs in the block's list, whoever sees it last removes the record.
template <template <class> class Atom, class Placement>
bool BasicBlockPool<Atom, Placement>::register_secondary(const Registration& next, std::uint64_t ordinal,
                                                         std::uint32_t version, PublishTally& tally) {
  Secondaries& store = install_secondaries();
  const auto number = store.acquire();
  if (!number) return false;
  const std::uint32_t block = next.block;
  store.fill(*number, {next.key, block, version, ordinal});
  const std::uint32_t slot = index_.insert(next.hash, num_blocks() + *number);
  if (slot == PrefixIndex<Atom>::kNoPosition) {
    store.release(*number);
    ++tally.index_full;
    return false;
  }
  tally.longest_probe = std::max<std::uint64_t>(tally.longest_probe, index_.distance_of(next.hash, slot));
  store.set_slot(*number, slot);
  store.link(block, *number);
  const auto ended = [&] {
    return !protocol_.state(block).hashed() ||
           protocol_.line(block).version.load(std::memory_order_acquire) != version;  // [K2]
  };
  bool twin = false;  // another holder of the block added the same key at the same time
  for (std::uint32_t at = store.next(*number); at != Secondaries::kNone && !twin; at = store.next(at)) {
    const auto view = store.read(at);
    if (!view || view->block != block) break;
    twin = view->key == next.key && view->version == version;
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

}  // namespace kvpool
