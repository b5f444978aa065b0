// Kernels over content and capacity: publish against find and recycle, entries outside their home bucket, units that
// stand for reachable blocks, and fences against a late device.
#pragma once

#include <memory>
#include <optional>

#include "tests/model/relacy/relacy_atomic.hpp"

#include "block/block_protocol.hpp"
#include "block/key_words.hpp"
#include "pool/capacity.hpp"
#include "prefix/prefix_index.hpp"
#include "queue/block_stack.hpp"
#include "queue/fence_queue.hpp"
#include "queue/order_ring.hpp"

namespace kvpool::model {

inline KeyWords kernel_key(std::uint8_t name) {
  BlockKey key;
  key.hash.size = 16;
  key.hash.bytes[0] = name;
  return KeyWords(key);
}

/// How often a thread looks for what another is about to do. It must not wait for it: that would be another program.
inline constexpr int kAttempts = 16;

/// Tickets that a kernel gives itself.
struct FixedTickets {
  std::uint32_t ticket;
  [[nodiscard]] std::uint32_t peek() const noexcept { return ticket; }
  void consume() noexcept {}
};

/// One block that is published, given back, recycled for another key and published again, while a reader looks one of
/// the two keys up and pins it: what he then reads is the content of that key.
struct PublishKernel : rl::test_suite<PublishKernel, 3> {
  static constexpr std::uint32_t kBlock = 1;
  static constexpr std::uint32_t kPlace = 7;

  std::unique_ptr<BlockProtocol<RelacyAtomic>> protocol;
  std::unique_ptr<PrefixIndex<RelacyAtomic>> index;
  rl::var<int> content;

  void publish(std::uint8_t name, std::uint32_t registration) {
    content($) = name;
    auto& line = protocol->line(kBlock);
    RL_ASSERT(protocol->begin_writing(kBlock));
    line.store_key(kernel_key(name), 0, 0);
    const std::uint32_t slot = index->insert(kernel_key(name).mixed(), kBlock);
    line.slot.store(slot, std::memory_order_relaxed);
    RL_ASSERT(protocol->publish(kBlock, registration));
  }
  void give_back(std::uint32_t ticket) {
    FixedTickets tickets{ticket};
    static_cast<void>(protocol->release(
        kBlock, [] { return ReleaseTarget::order; }, tickets, tickets));
  }
  void before() {
    protocol = std::make_unique<BlockProtocol<RelacyAtomic>>(2);
    index = std::make_unique<PrefixIndex<RelacyAtomic>>(1);
    content($) = 0;
    protocol->claim_owned(kBlock);
  }
  void thread(unsigned number) {
    if (number == 0) {
      publish(1, 100);
      give_back(kPlace);
    } else if (number == 1) {
      BlockState was;
      bool claimed = false;
      for (int attempt = 0; attempt < kAttempts && !claimed; ++attempt) {
        claimed = protocol->claim_in_order(kBlock, kPlace, was);
      }
      if (!claimed) return;
      auto& line = protocol->line(kBlock);
      RL_ASSERT(was.hashed());
      index->erase(line.load_key().mixed(), line.slot.load(std::memory_order_relaxed));
      publish(2, 101);
      give_back(kPlace + 1);
    } else {
      for (int attempt = 0; attempt < kAttempts; ++attempt) {
        if (look_up(static_cast<std::uint8_t>(1 + attempt % 2))) return;
      }
    }
  }
  bool look_up(std::uint8_t name) {
    const KeyWords key = kernel_key(name);
    bool found = false;
    index->for_each_match(key.mixed(), [&](std::uint32_t block) {
      BlockState seen = protocol->state(block);
      found = seen.hashed() && protocol->line(block).has_key(key) && protocol->try_reference(block, seen);
      return found;
    });
    if (!found) return false;
    RL_ASSERT(protocol->line(kBlock).has_key(key));
    RL_ASSERT(content($) == name);
    give_back(kPlace + 1U + name);
    return true;
  }
  void after() {
    index.reset();
    protocol.reset();
  }
};

/// Two holders read a block and give it back at the same time; whoever comes last pushes it, and a third thread writes
/// to it. Both reads come before: also that of the holder who was not the last.
struct SharedKernel : rl::test_suite<SharedKernel, 3> {
  static constexpr std::uint32_t kBlock = 1;
  std::unique_ptr<BlockProtocol<RelacyAtomic>> protocol;
  std::unique_ptr<BlockStack<RelacyAtomic>> stack;
  rl::var<int> content;

  void before() {
    protocol = std::make_unique<BlockProtocol<RelacyAtomic>>(2);
    stack = std::make_unique<BlockStack<RelacyAtomic>>();
    content($) = 5;
    protocol->claim_owned(kBlock);
    BlockState seen = protocol->state(kBlock);
    RL_ASSERT(protocol->try_reference(kBlock, seen));
  }
  void thread(unsigned number) {
    if (number < 2) {
      RL_ASSERT(content($) == 5);
      FixedTickets none{0};
      const auto outcome = protocol->release(
          kBlock, [] { return ReleaseTarget::order_if_hashed; }, none, none);
      if (outcome != ReleaseOutcome::blank) return;
      BlockStack<RelacyAtomic>::Chain chain;
      chain.append(*protocol, kBlock);
      stack->push(*protocol, chain);
      return;
    }
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      std::uint32_t block = 0;
      if (stack->pop(*protocol, {&block, 1}) == 0) continue;
      protocol->claim_owned(block);
      content($) = 6;
      return;
    }
  }
  void after() {
    stack.reset();
    protocol.reset();
  }
};

/// A bucket that overflows: whoever sees an entry beside its home finds it from its home.
struct OverflowKernel : rl::test_suite<OverflowKernel, 2> {
  static constexpr std::uint64_t kHash = 5;  // home: bucket 0
  std::unique_ptr<PrefixIndex<RelacyAtomic>> index;

  void before() {
    index = std::make_unique<PrefixIndex<RelacyAtomic>>(2);
    for (std::uint32_t value = 0; value < PrefixIndex<RelacyAtomic>::kSlotsPerBucket; ++value) {
      RL_ASSERT(index->insert(kHash + 1, value) != PrefixIndex<RelacyAtomic>::kNoPosition);
    }
  }
  void thread(unsigned number) {
    constexpr std::uint32_t kNextBucket = PrefixIndex<RelacyAtomic>::kSlotsPerBucket + 1;
    if (number == 0) {
      RL_ASSERT(index->distance_of(kHash, index->insert(kHash, 77)) == 1);
      return;
    }
    bool visible = false;
    for (int attempt = 0; attempt < kAttempts && !visible; ++attempt) visible = index->at(kNextBucket).has_value();
    if (!visible) return;
    bool found = false;
    index->for_each_match(kHash, [&](std::uint32_t value) { return found = value == 77; });
    RL_ASSERT(found);
  }
  void after() { index.reset(); }
};

/// Two blocks come back, one through the stack and one through the ring, and are credited; who reserves a unit and
/// looks everywhere once finds one, with everything that its last owner did.
struct CreditKernel : rl::test_suite<CreditKernel, 3> {
  std::unique_ptr<BlockProtocol<RelacyAtomic>> protocol;
  std::unique_ptr<BlockStack<RelacyAtomic>> stack;
  std::unique_ptr<OrderRing<RelacyAtomic>> ring;
  std::unique_ptr<Capacity<RelacyAtomic>> capacity;
  rl::var<int> content[3];

  void before() {
    protocol = std::make_unique<BlockProtocol<RelacyAtomic>>(3);
    stack = std::make_unique<BlockStack<RelacyAtomic>>();
    ring = std::make_unique<OrderRing<RelacyAtomic>>(4);
    capacity = std::make_unique<Capacity<RelacyAtomic>>(0);
    for (const std::uint32_t block : {1U, 2U}) {
      protocol->claim_owned(block);
      content[block]($) = 0;
    }
  }
  void release_blank(std::uint32_t block) {
    FixedTickets none{0};
    RL_ASSERT(protocol->release(
                  block, [] { return ReleaseTarget::order_if_hashed; }, none, none) == ReleaseOutcome::blank);
    BlockStack<RelacyAtomic>::Chain chain;
    chain.append(*protocol, block);
    stack->push(*protocol, chain);
    capacity->credit(1);
  }
  void release_to_ring(std::uint32_t block) {
    const std::uint64_t position = ring->take_positions(1);
    FixedTickets tickets{static_cast<std::uint32_t>(position)};
    RL_ASSERT(protocol->release(
                  block, [] { return ReleaseTarget::order; }, tickets, tickets) == ReleaseOutcome::ordered);
    std::uint64_t at = position;
    while (ring->put(at, block) == PutOutcome::killed) {
      const std::uint64_t next = ring->take_positions(1);
      if (!protocol->move_ticket(block, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(next))) {
        ring->kill(next);
        break;
      }
      at = next;
    }
    capacity->credit(1);
  }
  std::uint32_t look_everywhere() {
    std::uint32_t block = 0;
    if (stack->pop(*protocol, {&block, 1}) == 1) {
      protocol->claim_owned(block);
      return block;
    }
    RingEntry entry;
    std::uint32_t killed = 0;
    while (ring->take({&entry, 1}, killed) == 1) {
      BlockState was;
      if (entry.block != 0 && protocol->claim_in_order(entry.block, static_cast<std::uint32_t>(entry.position), was)) {
        return entry.block;
      }
    }
    return 0;
  }
  void thread(unsigned number) {
    if (number < 2) {
      const std::uint32_t block = number + 1;
      content[block]($) = static_cast<int>(number);
      number == 0 ? release_blank(block) : release_to_ring(block);
      return;
    }
    while (capacity->reserve(1)) {
      const std::uint32_t block = look_everywhere();
      RL_ASSERT(block != 0);  // nobody else takes blocks here
      content[block]($) = 9;
    }
  }
  void after() {
    ring.reset();
    stack.reset();
    protocol.reset();
    capacity.reset();
  }
};

/// Of two holders one names a fence; a device writes once more and then passes it; another thread collects what is free
/// and writes. The device's write comes first, or the block is not handed out, whichever holder was the last.
struct LateDeviceKernel : rl::test_suite<LateDeviceKernel, 4> {
  static constexpr std::uint32_t kBlock = 1;
  static constexpr std::uint64_t kFence = 5;
  std::unique_ptr<BlockProtocol<RelacyAtomic>> protocol;
  std::unique_ptr<BlockStack<RelacyAtomic>> stack;
  std::unique_ptr<FenceQueue<RelacyAtomic>> fences;
  rl::var<int> content;

  void push(std::uint32_t block) {
    BlockStack<RelacyAtomic>::Chain chain;
    chain.append(*protocol, block);
    stack->push(*protocol, chain);
  }
  void before() {
    protocol = std::make_unique<BlockProtocol<RelacyAtomic>>(2);
    stack = std::make_unique<BlockStack<RelacyAtomic>>();
    fences = std::make_unique<FenceQueue<RelacyAtomic>>(2, 2, TicketCodec(1));
    content($) = 0;
    protocol->claim_owned(kBlock);
    BlockState seen = protocol->state(kBlock);
    RL_ASSERT(protocol->try_reference(kBlock, seen));
  }
  void thread(unsigned number) {
    if (number == 0 || number == 3) {
      FenceQueue<RelacyAtomic>::Tickets tickets;
      tickets.attach(fences.get());
      if (number == 0) fences->require(kBlock, kFence);
      const auto choose = [&] {
        return fences->must_wait(kBlock) ? ReleaseTarget::fence : ReleaseTarget::order_if_hashed;
      };
      FixedTickets none{0};
      const ReleaseOutcome outcome = protocol->release(kBlock, choose, none, tickets);
      if (outcome == ReleaseOutcome::fenced) tickets.settle(*protocol, kBlock);
      if (outcome == ReleaseOutcome::blank) push(kBlock);
    } else if (number == 1) {
      content($) = 1;  // the device's last write of step 5
      fences->advance(kFence);
    } else {
      for (int attempt = 0; attempt < kAttempts && !collect(); ++attempt) {
      }
    }
  }
  bool collect() {
    FixedTickets none{0};
    const auto hand_over = [&](std::uint32_t block, std::uint32_t ticket) {
      const auto outcome = protocol->unfence(block, ticket, ReleaseTarget::order_if_hashed, none);
      if (outcome == ReleaseOutcome::blank) push(block);
    };
    fences->drain(*protocol, 1, hand_over);
    if (fences->needs_walk()) fences->walk(*protocol, hand_over);
    std::uint32_t block = 0;
    if (stack->pop(*protocol, {&block, 1}) == 0) return false;
    protocol->claim_owned(block);
    content($) = 2;  // the new owner's
    return true;
  }
  void after() {
    fences.reset();
    stack.reset();
    protocol.reset();
  }
};

}  // namespace kvpool::model
