// A FIFO of (ticket, block) entries in which consumers overtake suspended producers.
//
// A producer takes a position, then writes its entry; a consumer that meets a position without entry
// kills it, and the producer notices and takes a new one. Entries are hints: whether one still speaks of
// its block is decided on the block's state word.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "foundation/aligned_array.hpp"
#include "foundation/cache_line.hpp"
#include "foundation/prefetch.hpp"

namespace kvpool {

enum class PutOutcome {
  ok,
  killed,  ///< a consumer has passed the position
  full,    ///< the ring holds as many entries as it has slots
};

struct RingEntry {
  std::uint64_t position;
  std::uint32_t block;  ///< 0: a killed position
};

template <template <class> class Atom>
class OrderRing {
 public:
  /// `slots` is a power of two. Positions start one lap ahead, so that a zeroed slot reads as "older lap".
  explicit OrderRing(std::uint32_t slots, bool huge_pages = false)
      : slots_(slots, huge_pages), mask_(slots - 1), shift_(shift_of(slots)), head_(slots), tail_(slots) {}

  [[nodiscard]] std::uint64_t capacity() const noexcept { return mask_ + 1; }

  /// Takes `count` consecutive positions for entries of the caller. Wait-free.
  [[nodiscard]] std::uint64_t take_positions(std::uint32_t count) noexcept {
    return tail_.fetch_add(count, std::memory_order_acq_rel);  // [R1]
  }

  /// Starts loading the slots of the next `count` entries, to be taken.
  void prefetch_entries(std::uint32_t count) const noexcept {
    prefetch(head_.load(std::memory_order_relaxed), count);  // [H]
  }
  /// Starts loading the slots of positions that were taken, to be written.
  void prefetch(std::uint64_t position, std::uint32_t count) const noexcept {
    constexpr std::uint64_t kSlotsPerLine = kCacheLineBytes / sizeof(std::uint64_t);
    for (std::uint64_t at = position; at < position + count; at += kSlotsPerLine) {
      prefetch_to_write(&slots_[at & mask_]);
    }
  }

  /// Writes an entry at a position that was taken. Lock-free.
  [[nodiscard]] PutOutcome put(std::uint64_t position, std::uint32_t block) noexcept {
    Atom<std::uint64_t>& slot = slots_[position & mask_];
    std::uint64_t entry = slot.load(std::memory_order_acquire);  // [R2]
    for (;;) {
      if (age(entry, position) >= 0) return PutOutcome::killed;
      const std::uint64_t head = head_.load(std::memory_order_acquire);  // [R5] reuse only what was consumed
      if (static_cast<std::int64_t>(position - head) >= static_cast<std::int64_t>(capacity())) return PutOutcome::full;
      if (slot.compare_exchange_strong(entry, pack(position, block), std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {  // [R3]
        return PutOutcome::ok;
      }
    }
  }

  /// Gives a position up that no entry will be written to.
  void kill(std::uint64_t position) noexcept {
    Atom<std::uint64_t>& slot = slots_[position & mask_];
    std::uint64_t entry = slot.load(std::memory_order_acquire);  // [R2]
    while (age(entry, position) < 0) {
      const std::uint64_t head = head_.load(std::memory_order_acquire);  // [R5]
      if (static_cast<std::int64_t>(position - head) >= static_cast<std::int64_t>(capacity())) return;
      if (slot.compare_exchange_strong(entry, pack(position, kKilled), std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {  // [R4]
        return;
      }
    }
  }

  /// Reads up to out.size() entries from the head without taking them. A pending position ends the run,
  /// or is killed when it is the first one (counted in `killed`). The run starts at out[0].position.
  /// Lock-free.
  [[nodiscard]] std::size_t peek(std::span<RingEntry> out, std::uint32_t& killed) noexcept {
    for (;;) {
      const std::uint64_t head = head_.load(std::memory_order_acquire);  // [R6]
      const std::uint64_t tail = tail_.load(std::memory_order_acquire);  // [R1]
      std::size_t found = 0;
      bool outdated = false;
      while (found < out.size() && static_cast<std::int64_t>(tail - (head + found)) > 0) {
        const std::uint64_t position = head + found;
        Atom<std::uint64_t>& slot = slots_[position & mask_];
        std::uint64_t entry = slot.load(std::memory_order_acquire);  // [R2]
        if (age(entry, position) < 0) {
          if (found > 0) break;
          if (slot.compare_exchange_strong(entry, pack(position, kKilled), std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {  // [R4]
            ++killed;
            entry = pack(position, kKilled);
          }
        }
        if (age(entry, position) != 0) {
          outdated = true;  // a newer lap: the head has moved on
          break;
        }
        out[found++] = {position, block_of(entry)};
      }
      if (!outdated) return found;
    }
  }

  /// Moves the head over a run that was peeked. True: its entries belong to the caller alone.
  [[nodiscard]] bool advance(std::uint64_t first_position, std::size_t count) noexcept {
    std::uint64_t expected = first_position;
    return head_.compare_exchange_strong(expected, first_position + count, std::memory_order_acq_rel,
                                         std::memory_order_relaxed);  // [R6] slots are free for [R5]
  }

  /// Takes up to out.size() entries, exclusively. 0: nothing there. Lock-free.
  [[nodiscard]] std::size_t take(std::span<RingEntry> out, std::uint32_t& killed) noexcept {
    for (;;) {
      const std::size_t found = peek(out, killed);
      if (found == 0 || advance(out[0].position, found)) return found;
    }
  }

  /// Positions between head and tail, dead entries included; a hint while others work.
  [[nodiscard]] std::uint64_t span_hint() const noexcept {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);  // [H]
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);  // [H]
    return static_cast<std::int64_t>(tail - head) > 0 ? tail - head : 0;
  }

  /// Positions ever handed out; a hint while others work.
  [[nodiscard]] std::uint64_t puts_hint() const noexcept { return tail_.load(std::memory_order_relaxed); }  // [H]

  /// Calls visit(entry) from head to tail; only while nobody else works on the ring.
  template <class Visit>
  void for_each(Visit visit) const {
    const std::uint64_t tail = tail_.load(std::memory_order_acquire);                   // [R1]
    for (std::uint64_t at = head_.load(std::memory_order_acquire); at != tail; ++at) {  // [R6]
      const std::uint64_t entry = slots_[at & mask_].load(std::memory_order_acquire);   // [R2]
      if (age(entry, at) == 0 && block_of(entry) != 0) visit(RingEntry{at, block_of(entry)});
    }
  }

 private:
  static constexpr std::uint32_t kKilled = 0;  // block 0 is never free, so its number marks a dead position

  static constexpr unsigned shift_of(std::uint32_t slots) noexcept {
    unsigned shift = 0;
    while ((std::uint64_t{1} << shift) < slots) ++shift;
    return shift;
  }
  [[nodiscard]] std::uint32_t lap(std::uint64_t position) const noexcept {
    return static_cast<std::uint32_t>(position >> shift_);
  }
  [[nodiscard]] std::uint64_t pack(std::uint64_t position, std::uint32_t block) const noexcept {
    return (std::uint64_t{lap(position)} << 32U) | block;
  }
  static constexpr std::uint32_t block_of(std::uint64_t entry) noexcept { return static_cast<std::uint32_t>(entry); }
  /// Lap of the entry minus lap of the position: negative = pending, 0 = written, positive = overwritten.
  [[nodiscard]] std::int32_t age(std::uint64_t entry, std::uint64_t position) const noexcept {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(entry >> 32U) - lap(position));
  }

  AlignedArray<Atom<std::uint64_t>> slots_;  ///< lap:32 | block:32
  std::uint64_t mask_;
  unsigned shift_;
  alignas(kCacheLineBytes) Atom<std::uint64_t> head_;
  alignas(kCacheLineBytes) Atom<std::uint64_t> tail_;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace kvpool
