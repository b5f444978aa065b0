// Key fingerprints to block numbers: open addressing, one cache line a bucket, no tombstones.
//
// The index knows neither keys nor blocks. It answers with every value whose fingerprint matches, and the
// caller verifies. Equal fingerprints, and equal values, may stand several times.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>

#include "foundation/aligned_array.hpp"
#include "foundation/cache_line.hpp"
#include "foundation/prefetch.hpp"

namespace kvpool {

/// Invariant: an entry outside its home bucket is accounted for in the home's `meta` (how many there are,
/// how far the farthest lies) before it becomes visible. An entry never moves.
template <template <class> class Atom>
class PrefixIndex {
 public:
  static constexpr std::uint32_t kSlotsPerBucket = 7;
  static constexpr std::uint32_t kNoPosition = 0xffffffffU;  ///< buckets have no eighth slot
  static constexpr std::uint32_t kMaxBuckets = 1U << 28U;    ///< what a position can number

  explicit PrefixIndex(std::uint32_t buckets, bool huge_pages = false) : buckets_(buckets, huge_pages) {}

  [[nodiscard]] std::size_t num_buckets() const noexcept { return buckets_.size(); }

  /// Starts loading what a look-up of `hash` will need.
  void prefetch(std::uint64_t hash) const noexcept { prefetch_to_read(&buckets_[home_of(hash)]); }
  /// The same for an insertion, and for the erasure of what stands at `position`.
  void prefetch_insertion(std::uint64_t hash) const noexcept { prefetch_to_write(&buckets_[home_of(hash)]); }
  void prefetch_erasure(std::uint32_t position) const noexcept {
    const std::size_t at = bucket_of(position);
    if (at < buckets_.size()) prefetch_to_write(&buckets_[at]);
  }

  /// Enters `value` and answers its position; kNoPosition when no slot is left. `home_slot` is the empty slot that
  /// survey() named, if it was asked. Lock-free: a slot is lost only to another insertion.
  [[nodiscard]] std::uint32_t insert(std::uint64_t hash, std::uint32_t value,
                                     std::uint32_t home_slot = kSlotsPerBucket) noexcept {
    const std::size_t home = home_of(hash);
    const std::uint64_t entry = (std::uint64_t{value + 1U} << 32U) | fingerprint_of(hash);
    if (home_slot < kSlotsPerBucket && enter_slot(buckets_[home], home_slot, entry)) {
      return position_of(home, home_slot);
    }
    return insert_anywhere(home, entry);
  }

  /// Removes the entry that insert() put at `position`. `hash_of()` answers the hash it was put there for; it is asked
  /// only if the entry lies outside its home bucket. Only by the one thread that ended what the entry stood for.
  /// Wait-free but for the count of a crowded bucket, which is lock-free.
  template <class HashOf>
  void erase_at(std::uint32_t position, HashOf&& hash_of) noexcept {
    buckets_[bucket_of(position)].slots[slot_of(position)].store(kEmpty, std::memory_order_release);  // [I3]
    if ((position & kElsewhere) != 0) discount(buckets_[home_of(hash_of())]);
  }
  void erase(std::uint64_t hash, std::uint32_t position) noexcept {
    erase_at(position, [hash] { return hash; });
  }

  /// Calls visit(value) for each entry with the fingerprint of `hash` until it answers true; whether it did. Wait-free.
  template <class Visit>
  bool for_each_match(std::uint64_t hash, Visit&& visit) const {
    const std::size_t home = home_of(hash);
    const std::uint32_t fingerprint = fingerprint_of(hash);
    if (scan(buckets_[home], fingerprint, visit)) return true;
    const std::uint64_t meta = buckets_[home].meta.load(std::memory_order_acquire);  // [I5]
    const auto farthest = static_cast<std::size_t>(meta & kDistanceMask);
    return farthest > 0 && scan_elsewhere(home, farthest, fingerprint, visit);
  }

  /// What a registration wants to know of a home bucket before its insert().
  struct Survey {
    std::uint32_t empty_slot = kSlotsPerBucket;  ///< kSlotsPerBucket: none
    bool may_match = false;                      ///< for_each_match() might visit something
  };
  /// One pass over the home bucket of `hash`. Wait-free.
  [[nodiscard]] Survey survey(std::uint64_t hash) const noexcept {
    const Bucket& bucket = buckets_[home_of(hash)];
    const std::uint32_t fingerprint = fingerprint_of(hash);
    Survey result;
    for_each_slot([&](std::uint32_t i) {
      const std::uint64_t entry = bucket.slots[i].load(std::memory_order_acquire);  // [I2]
      result.empty_slot = entry == kEmpty ? i : result.empty_slot;
      result.may_match |= static_cast<std::uint32_t>(entry) == fingerprint;
    });
    const std::uint64_t meta = bucket.meta.load(std::memory_order_acquire);  // [I5]
    result.may_match |= (meta & kDistanceMask) != 0;
    return result;
  }

  /// Whether insert() put an entry outside its home bucket.
  [[nodiscard]] static bool is_elsewhere(std::uint32_t position) noexcept {
    return position != kNoPosition && (position & kElsewhere) != 0;
  }

  /// How many buckets lie between the home of `hash` and `position`.
  [[nodiscard]] std::size_t distance_of(std::uint64_t hash, std::uint32_t position) const noexcept {
    if ((position & kElsewhere) == 0) return 0;
    const std::size_t at = bucket_of(position);
    const std::size_t home = home_of(hash);
    return at >= home ? at - home : at + buckets_.size() - home;
  }

  /// Buckets that a look-up of `hash` reads.
  [[nodiscard]] std::size_t probe_length(std::uint64_t hash) const noexcept {
    return 1 + static_cast<std::size_t>(buckets_[home_of(hash)].meta.load(std::memory_order_relaxed) & kDistanceMask);
  }

  /// What an entry of `hash` carries besides its value: never 0, so that an empty slot matches nothing.
  [[nodiscard]] static std::uint32_t fingerprint_of(std::uint64_t hash) noexcept {
    const auto low = static_cast<std::uint32_t>(hash);
    return low - (low == 0 ? 1U : 0U);
  }

  /// Value and fingerprint stored at a position, empty if none; for checks while nobody else works here.
  struct Entry {
    std::uint32_t fingerprint;
    std::uint32_t value;
  };
  [[nodiscard]] std::optional<Entry> at(std::uint32_t position) const noexcept {
    const std::size_t bucket = bucket_of(position);
    const std::uint32_t slot = slot_of(position);
    if (bucket >= buckets_.size() || slot >= kSlotsPerBucket) return std::nullopt;
    const std::uint64_t entry = buckets_[bucket].slots[slot].load(std::memory_order_acquire);  // [I2]
    if (entry == kEmpty) return std::nullopt;
    return Entry{static_cast<std::uint32_t>(entry), value_of(entry)};
  }
  [[nodiscard]] std::size_t num_entries() const noexcept {
    std::size_t entries = 0;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (const auto& slot : buckets_[b].slots) entries += slot.load(std::memory_order_relaxed) != kEmpty ? 1U : 0U;
    }
    return entries;
  }
  /// Entries outside their home bucket, as the buckets account for them.
  [[nodiscard]] std::uint64_t num_overflowed() const noexcept {
    std::uint64_t entries = 0;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      entries += buckets_[b].meta.load(std::memory_order_relaxed) >> kCountShift;
    }
    return entries;
  }

  /// Empties everything; only while nobody else works here.
  void clear() noexcept {
    for (Bucket& bucket : buckets_) {
      bucket.meta.store(0, std::memory_order_relaxed);  // [H]
      for (auto& slot : bucket.slots) slot.store(kEmpty, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = 0;
  static constexpr std::uint32_t kElsewhere = 1U << 31U;  ///< of a position: not in the home bucket
  static constexpr unsigned kCountShift = 32;
  static constexpr std::uint64_t kDistanceMask = (std::uint64_t{1} << kCountShift) - 1;

  struct alignas(kCacheLineBytes) Bucket {
    Atom<std::uint64_t> meta{0};                   ///< entries elsewhere:32 | largest distance:32
    Atom<std::uint64_t> slots[kSlotsPerBucket]{};  ///< value+1:32 | fingerprint:32
  };
  static_assert(sizeof(std::atomic<std::uint64_t>) * (kSlotsPerBucket + 1) == kCacheLineBytes);

  [[nodiscard]] std::size_t home_of(std::uint64_t hash) const noexcept {
    return static_cast<std::size_t>(((hash >> 32U) * buckets_.size()) >> 32U);
  }
  /// elsewhere:1 | bucket:28 | slot:3
  [[nodiscard]] static std::uint32_t position_of(std::size_t bucket, std::uint32_t slot) noexcept {
    return static_cast<std::uint32_t>(bucket * (kSlotsPerBucket + 1)) + slot;
  }
  [[nodiscard]] static std::size_t bucket_of(std::uint32_t position) noexcept {
    return (position & ~kElsewhere) / (kSlotsPerBucket + 1);
  }
  [[nodiscard]] static std::uint32_t slot_of(std::uint32_t position) noexcept {
    return position % (kSlotsPerBucket + 1);
  }
  [[nodiscard]] static std::uint32_t value_of(std::uint64_t entry) noexcept {
    return static_cast<std::uint32_t>(entry >> 32U) - 1U;
  }
  [[nodiscard]] std::size_t wrapped(std::size_t at) const noexcept {
    return at < buckets_.size() ? at : at - buckets_.size();
  }

  // Which slot of a bucket matches, and which is empty, nobody can predict, and a wrong guess of the processor waits
  // for the bucket to arrive and throws away the look-ups that follow. So all slots are looked at without a branch,
  // and what is left to decide turns out the same way mostly: found or not, one match and no second.

  /// Calls look(i) for every slot, written out.
  template <class Look>
  static void for_each_slot(Look&& look) noexcept {
    static_assert(kSlotsPerBucket == 7);
    look(0U), look(1U), look(2U), look(3U), look(4U), look(5U), look(6U);
  }

  /// One bit for each slot without an entry.
  [[nodiscard]] static std::uint32_t empty_slots(const Bucket& bucket) noexcept {
    std::uint32_t bits = 0;
    for_each_slot([&](std::uint32_t i) {
      bits |= (bucket.slots[i].load(std::memory_order_relaxed) == kEmpty ? 1U : 0U) << i;  // [H]
    });
    return bits;
  }

  /// False: another insertion has taken the slot.
  [[nodiscard]] static bool enter_slot(Bucket& bucket, std::uint32_t slot, std::uint64_t entry) noexcept {
    std::uint64_t expected = kEmpty;
    return bucket.slots[slot].compare_exchange_strong(expected, entry, std::memory_order_release,
                                                      std::memory_order_relaxed);  // [I1]
  }

  [[nodiscard]] std::uint32_t insert_anywhere(std::size_t home, std::uint64_t entry) noexcept {
    bool counted = false;
    for (std::size_t distance = 0; distance < buckets_.size(); ++distance) {
      const std::size_t at = wrapped(home + distance);
      for (std::uint32_t empty = empty_slots(buckets_[at]); empty != 0; empty &= empty - 1) {
        if (distance > 0) {
          account(buckets_[home], distance, !counted);
          counted = true;
        }
        const auto slot = static_cast<std::uint32_t>(std::countr_zero(empty));
        if (enter_slot(buckets_[at], slot, entry)) return position_of(at, slot) | (distance > 0 ? kElsewhere : 0);
      }
    }
    if (counted) discount(buckets_[home]);
    return kNoPosition;
  }

  template <class Visit>
  static bool scan(const Bucket& bucket, std::uint32_t fingerprint, Visit& visit) {
    std::uint64_t match = kEmpty;
    for_each_slot([&](std::uint32_t i) {
      const std::uint64_t entry = bucket.slots[i].load(std::memory_order_acquire);  // [I2]
      match = static_cast<std::uint32_t>(entry) == fingerprint ? entry : match;
    });
    if (match == kEmpty) return false;
    return visit(value_of(match)) || scan_others(bucket, fingerprint, match, visit);
  }
  /// The matches of a bucket beside `seen`, which was visited.
  template <class Visit>
  [[gnu::noinline]] static bool scan_others(const Bucket& bucket, std::uint32_t fingerprint, std::uint64_t seen,
                                            Visit& visit) {
    bool passed = false;  // equal entries may stand several times: one of them was visited
    for (const auto& slot : bucket.slots) {
      const std::uint64_t entry = slot.load(std::memory_order_acquire);  // [I2]
      if (static_cast<std::uint32_t>(entry) != fingerprint) continue;
      if (!passed && entry == seen) {
        passed = true;
      } else if (visit(value_of(entry))) {
        return true;
      }
    }
    return false;
  }
  template <class Visit>
  [[gnu::noinline]] bool scan_elsewhere(std::size_t home, std::size_t farthest, std::uint32_t fingerprint,
                                        Visit& visit) const {
    for (std::size_t distance = 1; distance <= farthest; ++distance) {
      if (scan(buckets_[wrapped(home + distance)], fingerprint, visit)) return true;
    }
    return false;
  }

  void account(Bucket& home, std::uint64_t distance, bool add_one) noexcept {
    std::uint64_t meta = home.meta.load(std::memory_order_relaxed);  // [H]
    for (;;) {
      const std::uint64_t farthest = (meta & kDistanceMask) < distance ? distance : (meta & kDistanceMask);
      const std::uint64_t count = (meta >> kCountShift) + (add_one ? 1U : 0U);
      const std::uint64_t next = (count << kCountShift) | farthest;
      if (next == meta) return;
      if (home.meta.compare_exchange_weak(meta, next, std::memory_order_acq_rel, std::memory_order_relaxed))
        return;  // [I4]
    }
  }
  void discount(Bucket& home) noexcept {
    std::uint64_t meta = home.meta.load(std::memory_order_relaxed);  // [H]
    for (;;) {
      const std::uint64_t count = (meta >> kCountShift) - 1U;
      const std::uint64_t next = count == 0 ? 0 : (count << kCountShift) | (meta & kDistanceMask);
      if (home.meta.compare_exchange_weak(meta, next, std::memory_order_acq_rel, std::memory_order_relaxed))
        return;  // [I4]
    }
  }

  AlignedArray<Bucket> buckets_;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace kvpool
