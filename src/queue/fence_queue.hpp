// Unreferenced blocks that work in flight may still touch, in the order in which they were freed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "block/block_protocol.hpp"
#include "foundation/aligned_array.hpp"
#include "queue/order_ring.hpp"
#include "queue/ticket_codec.hpp"

namespace kvpool {

/// A ring of (ticket, block) entries like those of the free order, and per block the highest fence that any
/// of its holders named. A block whose entry found no slot, or stands behind one with a later fence, is found
/// by a walk over the state words, which a failing allocation pays for.
template <template <class> class Atom>
class FenceQueue {
 public:
  using Protocol = BlockProtocol<Atom>;

  FenceQueue(std::uint32_t num_blocks, std::uint32_t ring_slots, TicketCodec codec)
      : codec_(codec), ring_(ring_slots), fences_(num_blocks) {}

  /// Tickets of one release; see ShardOrder::Tickets.
  class Tickets {
   public:
    Tickets() = default;
    ~Tickets() {
      if (held_) queue_->ring_.kill(next_);
    }
    Tickets(const Tickets&) = delete;
    Tickets& operator=(const Tickets&) = delete;
    /// Names the queue, before the first ticket is needed.
    void attach(FenceQueue* queue) noexcept { queue_ = queue; }
    [[nodiscard]] std::uint32_t peek() noexcept {
      if (!held_) next_ = queue_->ring_.take_positions(1);
      held_ = true;
      return queue_->codec_.fence(next_);
    }
    void consume() noexcept {
      used_ = next_;
      held_ = false;
    }
    void settle(Protocol& protocol, std::uint32_t block) noexcept { queue_->settle(protocol, used_, block); }

   private:
    FenceQueue* queue_ = nullptr;
    std::uint64_t next_ = 0;
    std::uint64_t used_ = 0;
    bool held_ = false;
  };

  /// Notes that a holder of `block` names `fence`; before the holder gives its reference back.
  void require(std::uint32_t block, std::uint64_t fence) noexcept {
    raise(fences_[block], fence);                                                        // [F3]
    if (raise(latest_, fence) > fence) needs_walk_.store(1, std::memory_order_release);  // [F4]
  }

  /// Whether `block`, losing its last reference now, has to wait.
  [[nodiscard]] bool must_wait(std::uint32_t block) const noexcept {
    return fences_[block].load(std::memory_order_acquire) > passed_.load(std::memory_order_acquire);  // [F1] [F3]
  }

  void advance(std::uint64_t value) noexcept { raise(passed_, value); }  // [F1]

  /// Calls unfence(block, ticket) for blocks at the front whose fence has passed, at most `limit` of them;
  /// the block is in the caller's hands if its state agrees. Answers how many. Lock-free.
  template <class Unfence>
  std::size_t drain(Protocol& protocol, std::size_t limit, Unfence&& unfence) {
    std::size_t drained = 0;
    while (drained < limit) {
      std::array<RingEntry, 1> front;
      std::uint32_t killed = 0;
      if (ring_.peek(front, killed) == 0) break;
      const RingEntry entry = front[0];
      const std::uint32_t ticket = codec_.fence(entry.position);
      const bool live = entry.block != 0 && protocol.state(entry.block).lives_in_fence(ticket);
      if (live && must_wait(entry.block)) break;
      if (ring_.advance(entry.position, 1) && live) {
        unfence(entry.block, ticket);
        ++drained;
      }
    }
    return drained;
  }

  /// Whether blocks may wait that drain() does not reach.
  [[nodiscard]] bool needs_walk() const noexcept { return needs_walk_.load(std::memory_order_acquire) != 0; }  // [F4]

  /// Calls unfence(block, ticket) for every block whose fence has passed, wherever it stands. O(blocks).
  template <class Unfence>
  void walk(Protocol& protocol, Unfence&& unfence) {
    // An exchange, since a plain store could pass the reads below and wipe out what they have missed.
    static_cast<void>(needs_walk_.exchange(0, std::memory_order_acq_rel));  // [F4] before the words are read
    bool left = false;
    for (std::uint32_t block = 1; block < protocol.size(); ++block) {
      const BlockState seen = protocol.state(block);
      if (!seen.fenced()) continue;
      if (must_wait(block)) {
        left = true;
      } else {
        unfence(block, seen.ticket());
      }
    }
    if (left) needs_walk_.store(1, std::memory_order_release);  // [F4]
  }

 private:
  /// Raises `word` to at least `value` and answers what it was.
  static std::uint64_t raise(Atom<std::uint64_t>& word, std::uint64_t value) noexcept {
    std::uint64_t before = word.load(std::memory_order_acquire);
    while (before < value &&
           !word.compare_exchange_weak(before, value, std::memory_order_acq_rel, std::memory_order_acquire)) {
    }
    return before;
  }

  void settle(Protocol& protocol, std::uint64_t position, std::uint32_t block) noexcept {
    for (;;) {
      // Asked for each position: while a consumer kills one, others with later fences may take the next.
      if (fences_[block].load(std::memory_order_acquire) < latest_.load(std::memory_order_acquire)) {  // [F2] [F3]
        needs_walk_.store(1, std::memory_order_release);  // [F4] it may stand behind a later fence
      }
      const PutOutcome outcome = ring_.put(position, block);
      if (outcome == PutOutcome::ok) return;
      if (outcome == PutOutcome::full) {
        needs_walk_.store(1, std::memory_order_release);  // [F4]
        return;
      }
      const std::uint64_t next = ring_.take_positions(1);
      if (!protocol.move_ticket(block, codec_.fence(position), codec_.fence(next))) {
        ring_.kill(next);
        return;
      }
      position = next;
    }
  }

  TicketCodec codec_;
  OrderRing<Atom> ring_;
  AlignedArray<Atom<std::uint64_t>> fences_;
  Atom<std::uint64_t> passed_{0};
  Atom<std::uint64_t> latest_{0};
  Atom<std::uint32_t> needs_walk_{0};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace kvpool
