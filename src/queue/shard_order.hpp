// The free order of one shard: a stack of blank blocks on the left, three rings of cached ones on the right.
//
// The rings play OLD, MID and YOUNG, in this order. Releases enter YOUNG. A touched block leaves a dead entry
// behind; each release pays for a few steps of compaction, which drops dead entries at the head of MID and
// appends the live ones to OLD, so that OLD before MID before YOUNG is kept and no step is long. When MID
// is empty the roles change: YOUNG, grown past half, becomes MID; or OLD does, to be cleaned itself.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "block/block_protocol.hpp"
#include "foundation/cache_line.hpp"
#include "queue/block_stack.hpp"
#include "queue/order_ring.hpp"
#include "queue/ticket_codec.hpp"

namespace kvpool {

/// What a shard's order had to do besides the ordinary.
struct OrderIncidents {
  std::uint32_t dead_slots = 0;        ///< entries whose position a consumer had passed
  std::uint32_t ring_full = 0;         ///< blocks that lost their content because a ring had no slot left
  std::uint32_t dropped_contents = 0;  ///< of them, those that had one
  std::uint32_t retries = 0;           ///< exchanges on state words that another thread had changed
  std::uint32_t dropped = 0;           ///< stale entries cleared away by compaction
  std::uint32_t moved = 0;             ///< live entries moved by compaction
};

template <template <class> class Atom>
class ShardOrder {
 public:
  using Protocol = BlockProtocol<Atom>;
  using Stack = BlockStack<Atom>;
  using Ring = OrderRing<Atom>;

  enum Role : std::uint32_t { old_role, mid_role, young_role };

  static constexpr std::int32_t kBudgetPerRelease = 16;
  static constexpr std::int32_t kDeadCost = 1;
  static constexpr std::int32_t kMoveCost = 8;

  ShardOrder(std::uint32_t shard, std::uint32_t ring_slots, TicketCodec codec, bool huge_pages = false)
      : shard_(shard),
        codec_(codec),
        rings_{Ring(ring_slots, huge_pages), Ring(ring_slots, huge_pages), Ring(ring_slots, huge_pages)} {}

  [[nodiscard]] std::uint32_t shard() const noexcept { return shard_; }
  [[nodiscard]] Stack& stack() noexcept { return stack_; }
  [[nodiscard]] const Stack& stack() const noexcept { return stack_; }

  /// Positions in YOUNG for the blocks of one release, in order. What was not used is killed at the end.
  class Tickets {
   public:
    Tickets(ShardOrder& order, std::uint32_t expected) : order_(order), ring_(order.ring_of(young_role)) {
      renew(expected);
    }
    ~Tickets() { drop(); }
    Tickets(const Tickets&) = delete;
    Tickets& operator=(const Tickets&) = delete;

    /// Takes positions for the next blocks of the release, after those that the last ones did not use are dropped.
    void renew(std::uint32_t expected) noexcept {
      drop();
      if (expected > 0) take(expected);
    }
    [[nodiscard]] std::uint32_t peek() noexcept {
      if (next_ == end_) take(1);
      return order_.codec_.order(order_.shard_, ring_, next_);
    }
    void consume() noexcept { used_ = next_++; }

    /// The last ticket that was used.
    [[nodiscard]] std::uint32_t used() const noexcept { return order_.codec_.order(order_.shard_, ring_, used_); }
    /// Kills its position: no entry will be put.
    void give_up() noexcept { order_.rings_[ring_].kill(used_); }

    /// Puts the entry of the block that used the last ticket.
    template <class OnDrop>
    void settle(Protocol& protocol, std::uint32_t block, OrderIncidents& incidents, OnDrop&& on_drop) {
      order_.settle(protocol, ring_, used_, block, incidents, on_drop);
    }

   private:
    void take(std::uint32_t count) noexcept {
      next_ = order_.rings_[ring_].take_positions(count);
      end_ = next_ + count;
      order_.rings_[ring_].prefetch(next_, 2 * count);  // and for the next blocks, which mostly follow
    }
    void drop() noexcept {
      for (; next_ != end_; ++next_) order_.rings_[ring_].kill(next_);
    }
    ShardOrder& order_;
    std::uint32_t ring_;
    std::uint64_t next_ = 0;
    std::uint64_t end_ = 0;
    std::uint64_t used_ = 0;
  };

  /// Drops dead entries and moves live ones from MID to OLD, at a cost proportional to `released`. The caller
  /// has not credited the blocks it released yet: they cover the one block that is in hand meanwhile.
  /// Lock-free.
  template <class OnDrop>
  void compact(Protocol& protocol, std::uint32_t released, OrderIncidents& incidents, OnDrop&& on_drop) {
    std::int64_t budget = std::int64_t{kBudgetPerRelease} * released;
    while (budget > 0) {
      const std::uint64_t roles = roles_.load(std::memory_order_acquire);  // [R8]
      const std::uint32_t mid = ring_in(roles, mid_role);
      std::array<RingEntry, kRun> run;
      const std::size_t found = rings_[mid].peek(run, incidents.dead_slots);
      if (found == 0) {
        if (!rotate(roles)) return;
        continue;
      }
      budget -= clean(protocol, roles, std::span(run).first(found), budget, incidents, on_drop);
    }
  }

  /// Claims up to out.size() blocks from one ring, oldest first; calls on_claimed(block) for each that
  /// had content, before the next is claimed, and on_candidate(block) a few blocks ahead of that:
  /// time to start loading what on_claimed will need. The caller holds as many reservations. Lock-free.
  template <class OnCandidate, class OnClaimed>
  [[nodiscard]] std::size_t claim(Protocol& protocol, Role role, std::span<std::uint32_t> out,
                                  OrderIncidents& incidents, OnCandidate&& on_candidate, OnClaimed&& on_claimed) {
    const std::uint32_t ring = ring_of(role);
    std::size_t claimed = 0;
    rings_[ring].prefetch_entries(kClaimRun);
    while (claimed < out.size()) {
      std::array<RingEntry, kClaimRun> run;
      const std::size_t wanted = out.size() - claimed < kClaimRun ? out.size() - claimed : kClaimRun;
      const std::size_t found = rings_[ring].take(std::span(run).first(wanted), incidents.dead_slots);
      if (found == 0) break;
      std::size_t line = 0;
      std::size_t candidate = 0;
      for (std::size_t i = 0; i < found; ++i) {
        for (; line < found && line < i + kLinesAhead; ++line) protocol.prefetch(run[line].block);
        for (; candidate < found && candidate < i + kCandidatesAhead; ++candidate) on_candidate(run[candidate].block);
        const std::uint32_t block = run[i].block;
        BlockState before;
        if (block == 0 || !protocol.claim_in_order(block, ticket(ring, run[i].position), before, &incidents.retries)) {
          continue;
        }
        if (before.hashed()) on_claimed(block);
        out[claimed++] = block;
      }
    }
    if (claimed > 0) rings_[ring].prefetch_entries(kClaimRun);  // for the next allocation
    return claimed;
  }

  template <class OnClaimed>
  [[nodiscard]] std::size_t claim(Protocol& protocol, Role role, std::span<std::uint32_t> out,
                                  OrderIncidents& incidents, OnClaimed&& on_claimed) {
    return claim(
        protocol, role, out, incidents, [](std::uint32_t) {}, on_claimed);
  }

  /// Entries ever put, moves of compaction included; a hint while others work.
  [[nodiscard]] std::uint64_t puts_hint() const noexcept {
    return rings_[0].puts_hint() + rings_[1].puts_hint() + rings_[2].puts_hint();
  }
  /// Entries that stand here, dead ones included; a hint while others work.
  [[nodiscard]] std::uint64_t span_hint() const noexcept {
    return rings_[0].span_hint() + rings_[1].span_hint() + rings_[2].span_hint();
  }

  /// Calls visit(block) for every live entry, oldest first; only while nobody else works on the shard.
  template <class Visit>
  void for_each_live(const Protocol& protocol, Visit visit) const {
    for (const Role role : {old_role, mid_role, young_role}) {
      const std::uint32_t ring = ring_of(role);
      rings_[ring].for_each([&](const RingEntry& entry) {
        if (protocol.state(entry.block).lives_in_order(ticket(ring, entry.position))) visit(entry.block);
      });
    }
  }

 private:
  static constexpr std::size_t kRun = 32;       ///< entries that compaction looks at together
  static constexpr std::size_t kClaimRun = 64;  ///< entries that an allocation takes together
  // The processor keeps about 16 loads in flight; asked for more it waits before it goes on.
  static constexpr std::size_t kLinesAhead = 14;      ///< blocks whose lines are on their way to be claimed
  static constexpr std::size_t kCandidatesAhead = 6;  ///< of them, those that are looked at already

  [[nodiscard]] static std::uint32_t ring_in(std::uint64_t roles, Role role) noexcept {
    return static_cast<std::uint32_t>(roles >> (2U * role)) & 3U;
  }
  [[nodiscard]] std::uint32_t ring_of(Role role) const noexcept {
    return ring_in(roles_.load(std::memory_order_acquire), role);  // [R8]
  }
  [[nodiscard]] static constexpr std::uint64_t roles_word(std::uint64_t changes, std::uint32_t old_ring,
                                                          std::uint32_t mid_ring, std::uint32_t young_ring) noexcept {
    return (changes << 6U) | (young_ring << 4U) | (mid_ring << 2U) | old_ring;
  }
  [[nodiscard]] std::uint32_t ticket(std::uint32_t ring, std::uint64_t position) const noexcept {
    return codec_.order(shard_, ring, position);
  }

  /// MID is empty: gives the role to the ring that needs cleaning. False: none does.
  bool rotate(std::uint64_t roles) noexcept {
    const std::uint32_t old_ring = ring_in(roles, old_role);
    const std::uint32_t mid_ring = ring_in(roles, mid_role);
    const std::uint32_t young_ring = ring_in(roles, young_role);
    const std::uint64_t half = rings_[0].capacity() / 2;
    const std::uint64_t changes = (roles >> 6U) + 1;
    std::uint64_t next = 0;
    if (rings_[young_ring].span_hint() > half) {
      next = roles_word(changes, old_ring, young_ring, mid_ring);
    } else if (rings_[old_ring].span_hint() > half) {
      next = roles_word(changes, mid_ring, old_ring, young_ring);
    } else {
      return false;
    }
    std::uint64_t expected = roles;
    roles_.compare_exchange_strong(expected, next, std::memory_order_acq_rel, std::memory_order_relaxed);  // [R7]
    return true;
  }

  /// Works off a run at the head of MID and answers what it cost.
  template <class OnDrop>
  std::int64_t clean(Protocol& protocol, std::uint64_t roles, std::span<const RingEntry> run, std::int64_t budget,
                     OrderIncidents& incidents, OnDrop&& on_drop) {
    const std::uint32_t mid = ring_in(roles, mid_role);
    const std::uint32_t old_ring = ring_in(roles, old_role);
    for (const RingEntry& entry : run) protocol.prefetch(entry.block);
    std::int64_t cost = 0;
    std::size_t at = 0;
    while (at < run.size() && cost < budget) {
      std::size_t dead = 0;
      while (at + dead < run.size() && cost < budget && !lives(protocol, mid, run[at + dead])) {
        ++dead;
        cost += kDeadCost;
      }
      if (dead > 0) {
        if (!rings_[mid].advance(run[at].position, dead)) return cost;
        incidents.dropped += static_cast<std::uint32_t>(dead);
        at += dead;
        continue;
      }
      cost += kMoveCost;
      if (!rings_[mid].advance(run[at].position, 1)) return cost;
      const std::uint64_t target = rings_[old_ring].take_positions(1);
      if (protocol.move_ticket(run[at].block, ticket(mid, run[at].position), ticket(old_ring, target))) {
        ++incidents.moved;
        settle(protocol, old_ring, target, run[at].block, incidents, on_drop);
      } else {
        rings_[old_ring].kill(target);
      }
      ++at;
    }
    return cost;
  }

  [[nodiscard]] bool lives(const Protocol& protocol, std::uint32_t ring, const RingEntry& entry) const noexcept {
    return entry.block != 0 && protocol.state(entry.block).lives_in_order(ticket(ring, entry.position));
  }

  /// Writes the entry of a block that stands under (ring, position), whatever it takes: a new position when a
  /// consumer has passed, the stack when the ring is full. Ends at once when the block has left its place.
  template <class OnDrop>
  void settle(Protocol& protocol, std::uint32_t ring, std::uint64_t position, std::uint32_t block,
              OrderIncidents& incidents, OnDrop&& on_drop) {
    for (;;) {
      const PutOutcome outcome = rings_[ring].put(position, block);
      if (outcome == PutOutcome::ok) return;
      if (outcome == PutOutcome::full) {
        BlockState before;
        if (!protocol.blank(block, ticket(ring, position), before)) return;
        ++incidents.ring_full;
        if (before.hashed()) {
          ++incidents.dropped_contents;
          on_drop(block);
        }
        typename Stack::Chain chain;
        chain.append(protocol, block);
        stack_.push(protocol, chain);
        return;
      }
      ++incidents.dead_slots;
      const std::uint64_t next = rings_[ring].take_positions(1);
      if (!protocol.move_ticket(block, ticket(ring, position), ticket(ring, next))) {
        rings_[ring].kill(next);
        return;
      }
      position = next;
    }
  }

  std::uint32_t shard_;
  TicketCodec codec_;
  Stack stack_;
  alignas(kCacheLineBytes) Atom<std::uint64_t> roles_{roles_word(0, 0, 1, 2)};  ///< changes | YOUNG | MID | OLD
  std::array<Ring, TicketCodec::kRingsPerShard> rings_;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace kvpool
