// Kernels in which two threads each write one word and then read the other's: at least one must see the other. Plain
// loads and stores, however ordered, allow that both miss; an exchange on one of the words does not.
#pragma once

#include <array>
#include <memory>

#include "tests/model/relacy/relacy_atomic.hpp"

#include "block/block_protocol.hpp"
#include "pool/secondary_keys.hpp"
#include "queue/fence_queue.hpp"
#include "tests/model/relacy/content_kernels.hpp"

namespace kvpool::model {

/// One thread adds a secondary key while another ends the registration it belongs to: one of them removes the record.
struct SecondaryKernel : rl::test_suite<SecondaryKernel, 2> {
  using Store = SecondaryKeys<RelacyAtomic>;
  static constexpr std::uint32_t kBlock = 1;
  std::unique_ptr<BlockProtocol<RelacyAtomic>> protocol;
  std::unique_ptr<Store> store;
  std::uint32_t record = 0;
  rl::atomic<int> removed;

  void sweep() {
    for (std::uint32_t at = store->detach(kBlock); at != Store::kNone; at = store->next(at)) {
      removed($).fetch_add(1, rl::mo_relaxed);
    }
  }
  void before() {
    protocol = std::make_unique<BlockProtocol<RelacyAtomic>>(2);
    store = std::make_unique<Store>(2);
    removed($).store(0, rl::mo_relaxed);
    protocol->claim_owned(kBlock);
    RL_ASSERT(protocol->publish(kBlock, 100));
    record = *store->acquire();
    store->fill(record, {kernel_key(2), kBlock, 1, 0});
  }
  void thread(unsigned number) {
    if (number == 0) {
      store->link(kBlock, record);
      if (!protocol->state(kBlock).hashed()) sweep();
    } else {
      BlockState seen = protocol->state(kBlock);
      RL_ASSERT(protocol->try_unpublish(kBlock, seen));
      sweep();
    }
  }
  void after() {
    RL_ASSERT(removed($).load(rl::mo_relaxed) == 1);
    store.reset();
    protocol.reset();
  }
};

/// A block is freed behind one with a later fence while another thread walks over the waiting blocks: it is found by
/// that walk, or the next one is known to be needed.
struct WalkKernel : rl::test_suite<WalkKernel, 2> {
  static constexpr std::uint32_t kBehind = 1;
  static constexpr std::uint32_t kFront = 2;
  std::unique_ptr<BlockProtocol<RelacyAtomic>> protocol;
  std::unique_ptr<FenceQueue<RelacyAtomic>> fences;
  rl::atomic<int> freed;

  void free(std::uint32_t block, std::uint64_t fence) {
    FenceQueue<RelacyAtomic>::Tickets tickets;
    tickets.attach(fences.get());
    fences->require(block, fence);
    FixedTickets none{0};
    RL_ASSERT(protocol->release(
                  block, [] { return ReleaseTarget::fence; }, none, tickets) == ReleaseOutcome::fenced);
    tickets.settle(*protocol, block);
  }
  void walk() {
    if (!fences->needs_walk()) return;
    FixedTickets none{0};
    fences->walk(*protocol, [&](std::uint32_t block, std::uint32_t ticket) {
      const auto outcome = protocol->unfence(block, ticket, ReleaseTarget::order_if_hashed, none);
      if (outcome == ReleaseOutcome::blank) freed($).fetch_add(1, rl::mo_relaxed);
    });
  }
  void before() {
    protocol = std::make_unique<BlockProtocol<RelacyAtomic>>(3);
    fences = std::make_unique<FenceQueue<RelacyAtomic>>(3, 4, TicketCodec(1));
    freed($).store(0, rl::mo_relaxed);
    for (const std::uint32_t block : {kBehind, kFront}) protocol->claim_owned(block);
    free(kFront, 9);
    BlockState waiting = protocol->state(kFront);
    RL_ASSERT(protocol->try_reference(kFront, waiting));  // a walk that leaves somebody waiting knows of the next
    fences->advance(5);
  }
  void thread(unsigned number) {
    if (number == 0) {
      free(kBehind, 4);  // passed meanwhile, as it may be between the question and the release
    } else {
      for (int attempt = 0; attempt < kAttempts; ++attempt) walk();
    }
  }
  void after() {
    if (freed($).load(rl::mo_relaxed) == 0) walk();
    RL_ASSERT(freed($).load(rl::mo_relaxed) == 1);
    fences.reset();
    protocol.reset();
  }
};

}  // namespace kvpool::model
