// All compare-and-swap loops on state words. Whoever wins one owns the outcome; see docs/protocol.md.
//
// Progress: every function is lock-free; a loop repeats only because another thread changed that word.
#pragma once

#include <atomic>
#include <cstdint>

#include "block/block_line.hpp"
#include "block/block_state.hpp"
#include "foundation/aligned_array.hpp"
#include "foundation/prefetch.hpp"

namespace kvpool {

/// What giving back one reference came to.
enum class ReleaseOutcome {
  not_referenced,    ///< nobody held one: nothing has changed
  still_referenced,  ///< others hold the block
  blank,             ///< free without a place: the caller owns it until it is pushed on a stack
  ordered,           ///< free under the ticket of the supply: the caller puts the entry
  fenced,            ///< waits under the ticket of the supply: the caller puts the entry
};

enum class ReleaseTarget {
  order_if_hashed,  ///< blocks with content to the order, blank ones to the caller
  order,            ///< every block to the order
  fence,            ///< every block to the fence ring
};

template <template <class> class Atom>
class BlockProtocol {
 public:
  using Line = BlockLine<Atom>;

  explicit BlockProtocol(std::uint32_t num_blocks, bool huge_pages = false) : lines_(num_blocks, huge_pages) {}

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(lines_.size()); }
  [[nodiscard]] Line& line(std::uint32_t block) noexcept { return lines_[block]; }
  [[nodiscard]] const Line& line(std::uint32_t block) const noexcept { return lines_[block]; }

  /// Starts loading the block's line, to be written.
  void prefetch(std::uint32_t block) const noexcept { prefetch_to_write(&lines_[block]); }

  [[nodiscard, gnu::always_inline]] BlockState state(std::uint32_t block) const noexcept {
    return BlockState(lines_[block].state.load(std::memory_order_acquire));  // [S1] sees the key words of [S5]
  }

  /// Hands out a block that only the caller can reach (popped from a stack).
  void claim_owned(std::uint32_t block) noexcept {
    const BlockState before = state(block);
    lines_[block].state.store(before.claimed().word(), std::memory_order_release);  // [S2] after [S3] by way of [T1]
  }

  /// Gives the caller a reference to a block that only the caller can reach, without handing it out anew.
  void reference_owned(std::uint32_t block) noexcept {
    lines_[block].state.store(state(block).with_reference().word(), std::memory_order_release);  // [S2]
  }

  /// Hands out the block if the order entry `ticket` still speaks of it. `before` is what it was; if it was
  /// hashed the caller now owns the erasure of its keys.
  [[nodiscard]] bool claim_in_order(std::uint32_t block, std::uint32_t ticket, BlockState& before,
                                    std::uint32_t* retries = nullptr) noexcept {
    before = state(block);
    while (before.lives_in_order(ticket)) {
      if (exchange(block, before, before.claimed())) return true;  // [S2]
      if (retries != nullptr) ++*retries;
    }
    return false;
  }

  /// Gives back one reference. `choose()` says where the block goes if this is the last one; it is asked only
  /// after the word showed that, so it sees what former holders did before they gave theirs back.
  /// `peek()` of a supply names the ticket to use, `consume()` is called when it was used. `retries` counts the
  /// exchanges that were lost.
  template <class Choose, class OrderTickets, class FenceTickets>
  [[nodiscard]] ReleaseOutcome release(std::uint32_t block, Choose choose, OrderTickets& order, FenceTickets& fence,
                                       std::uint32_t* retries = nullptr) noexcept {
    BlockState before = state(block);
    for (bool again = false;; again = true) {
      if (again && retries != nullptr) ++*retries;
      if (before.refs() == 0) return ReleaseOutcome::not_referenced;
      if (before.refs() > 1) {
        if (exchange(block, before, before.without_reference())) return ReleaseOutcome::still_referenced;  // [S3]
        continue;
      }
      const ReleaseTarget target = choose();
      if (target == ReleaseTarget::fence) {
        if (exchange(block, before, before.released_to_fence(fence.peek()))) {  // [S3]
          fence.consume();
          return ReleaseOutcome::fenced;
        }
      } else if (target == ReleaseTarget::order || before.hashed()) {
        if (exchange(block, before, before.released_to_order(order.peek()))) {  // [S3]
          order.consume();
          return ReleaseOutcome::ordered;
        }
      } else if (exchange(block, before, before.released_blank())) {  // [S3]
        return ReleaseOutcome::blank;
      }
    }
  }

  /// Adds a reference to exactly the state seen. On failure `seen` is what is there now.
  [[nodiscard]] bool try_reference(std::uint32_t block, BlockState& seen) noexcept {
    return exchange(block, seen, seen.with_reference());  // [S4]
  }

  /// Gives an entry that a consumer passed, or that is moved, a new ticket. False: no longer there.
  [[nodiscard]] bool move_ticket(std::uint32_t block, std::uint32_t from, std::uint32_t to) noexcept {
    BlockState before = state(block);
    while (before.lives_in_order(from) || before.lives_in_fence(from)) {
      if (exchange(block, before, before.moved_to(to))) return true;  // [S7]
    }
    return false;
  }

  /// Takes a block out of its ring for good, content included: it belongs to the caller, who pushes it on a
  /// stack and, if `before` was hashed, erases its keys. False: no longer there.
  [[nodiscard]] bool blank(std::uint32_t block, std::uint32_t ticket, BlockState& before) noexcept {
    before = state(block);
    while (before.lives_in_order(ticket) || before.lives_in_fence(ticket)) {
      if (exchange(block, before, before.blanked())) return true;  // [S8]
    }
    return false;
  }

  /// The fence of a block has passed: into the order under the supply's ticket, or to the caller as a blank
  /// one. not_referenced: it does not stand under `ticket` any more.
  template <class TicketSupply>
  [[nodiscard]] ReleaseOutcome unfence(std::uint32_t block, std::uint32_t ticket, ReleaseTarget target,
                                       TicketSupply& supply) noexcept {
    BlockState before = state(block);
    while (before.lives_in_fence(ticket)) {
      if (target == ReleaseTarget::order || (target == ReleaseTarget::order_if_hashed && before.hashed())) {
        if (exchange(block, before, before.unfenced_to_order(supply.peek()))) {  // [S9]
          supply.consume();
          return ReleaseOutcome::ordered;
        }
      } else if (exchange(block, before, before.blanked())) {  // [S9]
        return ReleaseOutcome::blank;
      }
    }
    return ReleaseOutcome::not_referenced;
  }

  /// Puts a block that the caller has just released, and whose entry is not put yet, under a ticket of the fence ring
  /// instead; `seen` is its place. The caller puts the entry there. False: somebody has pinned it.
  template <class FenceTickets>
  [[nodiscard]] bool hold_back(std::uint32_t block, ReleaseOutcome seen, std::uint32_t order_ticket,
                               FenceTickets& fence) noexcept {
    BlockState before = state(block);
    while (seen == ReleaseOutcome::ordered ? before.lives_in_order(order_ticket) : before.blank_free()) {
      if (exchange(block, before, before.held_back(fence.peek()))) {  // [S9]
        fence.consume();
        return true;
      }
    }
    return false;
  }

  /// The right to write the key words of a referenced block without content. The holder of the only
  /// reference has it anyway; several holders compete for one flag, and who does not get it does not wait.
  /// `before` is what was seen of the block, and afterwards what it was last.
  [[nodiscard]] bool begin_writing(std::uint32_t block, BlockState& before) noexcept {
    for (;;) {
      if (before.refs() == 0 || before.hashed() || before.writing()) return false;
      if (before.refs() == 1) return true;
      const BlockState flagged = before.with_writer();
      if (exchange(block, before, flagged)) {  // [S6]
        before = flagged;
        return true;
      }
    }
  }
  [[nodiscard]] bool begin_writing(std::uint32_t block) noexcept {
    BlockState before = state(block);
    return begin_writing(block, before);
  }
  void end_writing(std::uint32_t block) noexcept {
    BlockState before = state(block);
    while (before.writing() && !exchange(block, before, before.without_writer())) {  // [S6]
    }
  }

  /// Makes the key words of the block visible; `before` is what was seen of it. False: the block was freed meanwhile (a
  /// broken contract).
  [[nodiscard]] bool publish(std::uint32_t block, std::uint32_t registration_ticket, BlockState before) noexcept {
    while (before.refs() > 0 && !before.hashed()) {
      if (exchange(block, before, before.published(registration_ticket))) return true;  // [S5]
    }
    return false;
  }

  [[nodiscard]] bool publish(std::uint32_t block, std::uint32_t registration_ticket) noexcept {
    return publish(block, registration_ticket, state(block));
  }

  /// Takes the content away from exactly the state seen. On success everything that was read from the
  /// line since `seen` was loaded belongs to the registration that has ended, since a new one would have
  /// brought a new ticket; its erasure is the caller's.
  [[nodiscard]] bool try_unpublish(std::uint32_t block, BlockState& seen) noexcept {
    return exchange(block, seen, seen.unpublished());  // [S5]
  }

 private:
  bool exchange(std::uint32_t block, BlockState& before, BlockState after) noexcept {
    std::uint64_t expected = before.word();
    if (lines_[block].state.compare_exchange_strong(expected, after.word(), std::memory_order_acq_rel,
                                                    std::memory_order_acquire)) {
      return true;
    }
    before = BlockState(expected);
    return false;
  }

  AlignedArray<Line> lines_;
};

}  // namespace kvpool
