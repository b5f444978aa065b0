// Kernels over the free order: stack, ring, and the rings of a shard with compaction.
#pragma once

#include <memory>

#include "tests/model/relacy/relacy_atomic.hpp"

#include "block/block_protocol.hpp"
#include "queue/block_stack.hpp"
#include "queue/order_ring.hpp"
#include "queue/shard_order.hpp"

namespace kvpool::model {

/// Each thread pops a block, writes what only its owner may write, and pushes the block back.
struct StackKernel : rl::test_suite<StackKernel, 2> {
  std::unique_ptr<BlockProtocol<RelacyAtomic>> protocol;
  std::unique_ptr<BlockStack<RelacyAtomic>> stack;
  rl::var<int> content[3];

  void before() {
    protocol = std::make_unique<BlockProtocol<RelacyAtomic>>(3);
    stack = std::make_unique<BlockStack<RelacyAtomic>>();
    BlockStack<RelacyAtomic>::Chain chain;
    chain.append(*protocol, 1);
    chain.append(*protocol, 2);
    stack->push(*protocol, chain);
    content[1]($) = 0;
    content[2]($) = 0;
  }
  void thread(unsigned index) {
    for (int round = 0; round < 2; ++round) {
      std::uint32_t block = 0;
      if (stack->pop(*protocol, {&block, 1}) == 0) continue;
      content[block]($) = static_cast<int>(index);
      RL_ASSERT(content[block]($) == static_cast<int>(index));
      BlockStack<RelacyAtomic>::Chain chain;
      chain.append(*protocol, block);
      stack->push(*protocol, chain);
    }
  }
  void after() {
    std::uint32_t blocks[3] = {};
    RL_ASSERT(stack->pop(*protocol, blocks) == 2);
    RL_ASSERT(blocks[0] + blocks[1] == 3 && blocks[0] != blocks[1]);
    stack.reset();
    protocol.reset();
  }
};

/// Two blocks, and a thread that pops both and gives them back one by one while another is in the middle of a pop:
/// what the tag of the stack's top is for.
struct TagKernel : rl::test_suite<TagKernel, 2> {
  std::unique_ptr<BlockProtocol<RelacyAtomic>> protocol;
  std::unique_ptr<BlockStack<RelacyAtomic>> stack;
  rl::var<int> owner[4];

  void push(std::uint32_t block) {
    BlockStack<RelacyAtomic>::Chain chain;
    chain.append(*protocol, block);
    stack->push(*protocol, chain);
  }
  void use(std::uint32_t block, unsigned index) {
    RL_ASSERT(owner[block]($) == 0);
    owner[block]($) = 1 + static_cast<int>(index);
  }
  void before() {
    protocol = std::make_unique<BlockProtocol<RelacyAtomic>>(4);
    stack = std::make_unique<BlockStack<RelacyAtomic>>();
    for (std::uint32_t block = 3; block > 0; --block) push(block);
    for (int block = 0; block < 4; ++block) owner[block]($) = 0;
  }
  void thread(unsigned index) {
    std::uint32_t first = 0;
    if (stack->pop(*protocol, {&first, 1}) == 0) return;
    use(first, index);
    if (index == 0) return;  // keeps it
    std::uint32_t second = 0;
    if (stack->pop(*protocol, {&second, 1}) == 1) use(second, index);  // keeps it
    owner[first]($) = 0;
    push(first);
  }
  void after() {
    std::uint32_t blocks[4] = {};
    const std::size_t left = stack->pop(*protocol, blocks);
    for (std::size_t i = 0; i < left; ++i) use(blocks[i], 2);
    for (int block = 1; block < 4; ++block) RL_ASSERT(owner[block]($) != 0);
    stack.reset();
    protocol.reset();
  }
};

/// One producer writes content and puts the block; two consumers take: one of them at most gets it, with the content.
/// A consumer that passes the producer kills the position, and the producer puts again.
struct RingKernel : rl::test_suite<RingKernel, 3> {
  std::unique_ptr<OrderRing<RelacyAtomic>> ring;
  rl::var<int> content[4];
  rl::atomic<int> takers[4];

  void before() {
    ring = std::make_unique<OrderRing<RelacyAtomic>>(2);
    for (int i = 0; i < 4; ++i) {
      content[i]($) = 0;
      takers[i]($).store(0, rl::mo_relaxed);
    }
  }
  void thread(unsigned index) {
    if (index == 0) {
      for (std::uint32_t block = 1; block <= 2; ++block) {
        // The position comes first, as in a release: what its taking hands over says nothing about the content.
        std::uint64_t position = ring->take_positions(1);
        content[block]($) = static_cast<int>(block);
        while (ring->put(position, block) == PutOutcome::killed) position = ring->take_positions(1);
      }
      return;
    }
    for (int round = 0; round < 2; ++round) {
      RingEntry entry;
      std::uint32_t killed = 0;
      if (ring->take({&entry, 1}, killed) == 0 || entry.block == 0) continue;
      RL_ASSERT(content[entry.block]($) == static_cast<int>(entry.block));
      RL_ASSERT(takers[entry.block]($).fetch_add(1, rl::mo_relaxed) == 0);
    }
  }
  void after() { ring.reset(); }
};

/// Rings of two slots, so that every release makes the roles change and moves entries. Two threads claim, write, and
/// release under a new ticket; in the end every block has exactly one place.
struct MoveKernel : rl::test_suite<MoveKernel, 2> {
  using Order = ShardOrder<RelacyAtomic>;
  static constexpr std::uint32_t kBlocks = 3;  // the null block and two more

  std::unique_ptr<BlockProtocol<RelacyAtomic>> protocol;
  std::unique_ptr<Order> order;
  rl::var<int> content[kBlocks];

  void release(std::uint32_t block) {
    OrderIncidents incidents;
    const auto on_drop = [](std::uint32_t) {};
    {
      Order::Tickets tickets(*order, 1);
      const ReleaseOutcome outcome = protocol->release(
          block, [] { return ReleaseTarget::order; }, tickets, tickets);
      RL_ASSERT(outcome == ReleaseOutcome::ordered);
      tickets.settle(*protocol, block, incidents, on_drop);
    }
    order->compact(*protocol, 1, incidents, on_drop);
  }
  std::uint32_t claim() {
    OrderIncidents incidents;
    std::uint32_t block = 0;
    if (order->stack().pop(*protocol, {&block, 1}) == 1) {  // a full ring sends blocks there
      protocol->claim_owned(block);
      return block;
    }
    for (const auto role : {Order::old_role, Order::mid_role, Order::young_role}) {
      if (order->claim(*protocol, role, {&block, 1}, incidents, [](std::uint32_t) {}) == 1) return block;
    }
    return 0;
  }
  void before() {
    protocol = std::make_unique<BlockProtocol<RelacyAtomic>>(kBlocks);
    order = std::make_unique<Order>(0, 2, TicketCodec(1));
    for (std::uint32_t block = 1; block < kBlocks; ++block) {
      protocol->claim_owned(block);
      content[block]($) = 0;
      release(block);
    }
  }
  void thread(unsigned index) {
    const std::uint32_t block = claim();
    if (block == 0) return;  // the other moves it, or has it
    content[block]($) = static_cast<int>(index) + 1;
    RL_ASSERT(content[block]($) == static_cast<int>(index) + 1);
    release(block);
  }
  void after() {
    bool seen[kBlocks] = {};
    for (std::uint32_t i = 1; i < kBlocks; ++i) {
      const std::uint32_t block = claim();
      RL_ASSERT(block != 0 && !seen[block]);
      seen[block] = true;
    }
    RL_ASSERT(claim() == 0);
    order.reset();
    protocol.reset();
  }
};

}  // namespace kvpool::model
