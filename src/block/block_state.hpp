// The state word of a block: who may do what with it, in one 64-bit value.
//
//   63            32 31         20    19       18     17      16     15      0
//  | ticket          | generation | WRITING | FENCED | HASHED | IN_ORDER | ref |
//
//   ref         references; 0 = free or fenced. At most kMaxRefs.
//   IN_ORDER    stands in an order ring under `ticket`; only with ref 0
//   HASHED      answers for a key; the key words of the block's line are valid
//   FENCED      unreferenced, stands in the fence ring under `ticket`
//   WRITING     a holder of one of several references is writing the key words
//   generation  how often the block was handed out, modulo 4,096
//   ticket      place in a ring, or the number of the registration. Every registration of a key brings a
//               ticket that the block did not have before: equal words mean the same registration.
//
// A value class: every member function is pure and asserts its precondition. The compare-and-swap loops
// that install the results are in block_protocol.hpp.
#pragma once

#include <cassert>
#include <cstdint>

namespace kvpool {

class BlockState {
 public:
  static constexpr unsigned kRefBits = 16;
  static constexpr unsigned kFlagBits = 4;
  static constexpr unsigned kGenerationBits = 12;
  static constexpr unsigned kTicketBits = 32;
  static_assert(kRefBits + kFlagBits + kGenerationBits + kTicketBits == 64);

  static constexpr std::uint32_t kMaxRefs = (1U << kRefBits) - 2;  // 0xffff stays free as "saturated"
  static constexpr std::uint32_t kGenerationMask = (1U << kGenerationBits) - 1;

  constexpr BlockState() noexcept = default;
  constexpr explicit BlockState(std::uint64_t word) noexcept : word_(word) {}

  [[nodiscard]] constexpr std::uint64_t word() const noexcept { return word_; }
  [[nodiscard]] constexpr std::uint32_t refs() const noexcept { return static_cast<std::uint32_t>(word_ & kRefMask); }
  [[nodiscard]] constexpr bool in_order() const noexcept { return (word_ & kInOrder) != 0; }
  [[nodiscard]] constexpr bool hashed() const noexcept { return (word_ & kHashed) != 0; }
  [[nodiscard]] constexpr bool fenced() const noexcept { return (word_ & kFenced) != 0; }
  [[nodiscard]] constexpr bool writing() const noexcept { return (word_ & kWriting) != 0; }
  [[nodiscard]] constexpr std::uint16_t generation() const noexcept {
    return static_cast<std::uint16_t>((word_ >> kGenerationShift) & kGenerationMask);
  }
  [[nodiscard]] constexpr std::uint32_t ticket() const noexcept {
    return static_cast<std::uint32_t>(word_ >> kTicketShift);
  }

  /// Free and in no ring: in a stack, or on the way there.
  [[nodiscard]] constexpr bool blank_free() const noexcept { return (word_ & (kRefMask | kInOrder | kFenced)) == 0; }
  /// The order entry (ticket, block) speaks of this very state.
  [[nodiscard]] constexpr bool lives_in_order(std::uint32_t ticket_of_entry) const noexcept {
    return in_order() && ticket() == ticket_of_entry;
  }
  [[nodiscard]] constexpr bool lives_in_fence(std::uint32_t ticket_of_entry) const noexcept {
    return fenced() && ticket() == ticket_of_entry;
  }

  // --- transitions -----------------------------------------------------------------------------------

  /// Handed out anew: one reference, no content, next generation.
  [[nodiscard]] constexpr BlockState claimed() const noexcept {
    assert(refs() == 0);
    const std::uint64_t next = (std::uint64_t{generation()} + 1) & kGenerationMask;
    return BlockState((word_ & kTicketMask) | (next << kGenerationShift) | 1U);
  }
  /// One more reference; a free or fenced block leaves its ring, whose entry is stale from now on.
  [[nodiscard]] constexpr BlockState with_reference() const noexcept {
    assert(refs() < kMaxRefs);
    return BlockState((word_ & ~(kInOrder | kFenced)) + 1U);
  }
  /// One reference less, others remain.
  [[nodiscard]] constexpr BlockState without_reference() const noexcept {
    assert(refs() > 1);
    return BlockState(word_ - 1U);
  }
  /// Last reference gone; no content worth a place in the order.
  [[nodiscard]] constexpr BlockState released_blank() const noexcept {
    assert(refs() == 1 && !hashed());
    return BlockState(word_ & ~(kRefMask | kWriting));
  }
  /// Last reference gone; stands in an order ring under `ticket`.
  [[nodiscard]] constexpr BlockState released_to_order(std::uint32_t ticket) const noexcept {
    assert(refs() == 1);
    return BlockState((word_ & ~(kTicketMask | kRefMask | kWriting)) | with(ticket) | kInOrder);
  }
  /// Last reference gone; stands in the fence ring under `ticket`.
  [[nodiscard]] constexpr BlockState released_to_fence(std::uint32_t ticket) const noexcept {
    assert(refs() == 1);
    return BlockState((word_ & ~(kTicketMask | kRefMask | kWriting)) | with(ticket) | kFenced);
  }
  /// Same block, another place in its ring.
  [[nodiscard]] constexpr BlockState moved_to(std::uint32_t ticket) const noexcept {
    assert(in_order() || fenced());
    return BlockState((word_ & ~kTicketMask) | with(ticket));
  }
  /// Just released, allocated by nobody yet, and a fence was named meanwhile: into the fence ring.
  [[nodiscard]] constexpr BlockState held_back(std::uint32_t ticket) const noexcept {
    assert(refs() == 0 && !fenced());
    return BlockState((word_ & ~(kTicketMask | kInOrder)) | with(ticket) | kFenced);
  }
  /// The fence has passed: into an order ring.
  [[nodiscard]] constexpr BlockState unfenced_to_order(std::uint32_t ticket) const noexcept {
    assert(fenced());
    return BlockState((word_ & ~(kTicketMask | kFenced)) | with(ticket) | kInOrder);
  }
  /// Leaves its ring and its content: what remains belongs on a stack.
  [[nodiscard]] constexpr BlockState blanked() const noexcept {
    assert(refs() == 0);
    return BlockState(word_ & ~(kInOrder | kFenced | kHashed));
  }
  /// The right to write the key words, for one of several holders.
  [[nodiscard]] constexpr BlockState with_writer() const noexcept {
    assert(refs() > 0 && !hashed() && !writing());
    return BlockState(word_ | kWriting);
  }
  [[nodiscard]] constexpr BlockState without_writer() const noexcept { return BlockState(word_ & ~kWriting); }
  /// Answers for the key in its line from now on.
  [[nodiscard]] constexpr BlockState published(std::uint32_t registration_ticket) const noexcept {
    assert(refs() > 0 && !hashed());
    return BlockState((word_ & ~(kTicketMask | kWriting)) | with(registration_ticket) | kHashed);
  }
  /// Lost its content; references and place stay.
  [[nodiscard]] constexpr BlockState unpublished() const noexcept {
    assert(hashed());
    return BlockState(word_ & ~kHashed);
  }

 private:
  static constexpr unsigned kGenerationShift = kRefBits + kFlagBits;
  static constexpr unsigned kTicketShift = kGenerationShift + kGenerationBits;
  static constexpr std::uint64_t kRefMask = (std::uint64_t{1} << kRefBits) - 1;
  static constexpr std::uint64_t kInOrder = std::uint64_t{1} << kRefBits;
  static constexpr std::uint64_t kHashed = kInOrder << 1U;
  static constexpr std::uint64_t kFenced = kInOrder << 2U;
  static constexpr std::uint64_t kWriting = kInOrder << 3U;
  static constexpr std::uint64_t kTicketMask = ~std::uint64_t{0} << kTicketShift;
  static constexpr std::uint64_t with(std::uint32_t ticket) noexcept { return std::uint64_t{ticket} << kTicketShift; }

  std::uint64_t word_ = 0;
};

static_assert(sizeof(BlockState) == 8);

}  // namespace kvpool
