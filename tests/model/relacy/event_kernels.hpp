// Kernels over the event log: what is announced is read as it was written, and what was read is written again.
#pragma once

#include <memory>
#include <vector>

#include "tests/model/relacy/relacy_atomic.hpp"

#include "pool/event_log.hpp"

namespace kvpool::model {

/// One thread announces, the other one takes and reads; the memory goes around. A variable beside each event is written
/// with it and read with it, so that Relacy sees which accesses are in order.
struct EventKernel : rl::test_suite<EventKernel, 2> {
  using Log = EventLog<RelacyAtomic>;
  static constexpr std::size_t kMost = 8;
  std::unique_ptr<Log> log;
  std::vector<const BlockStoredEvent*> events;
  rl::var<std::int64_t> beside[kMost];

  std::size_t place(const BlockStoredEvent* event) {
    std::size_t i = 0;
    while (i < events.size() && events[i] != event) ++i;
    if (i == events.size()) events.push_back(event);
    RL_ASSERT(i < kMost);
    return i;
  }
  void before() {
    log = std::make_unique<Log>();
    events.clear();
    for (auto& variable : beside) variable($) = 0;
    const EventDraft one = log->draft();
    const EventDraft two = log->draft();
  }
  void thread(unsigned number) {
    if (number == 0) {
      for (std::int64_t i = 1; i <= 3; ++i) {
        EventDraft draft = log->draft();
        draft->block_size = i;
        beside[place(&*draft)]($) = i;
        log->append(std::move(draft));
      }
    } else {
      for (int round = 0; round < 2; ++round) {
        EventBatch batch = log->take_batch();
        for (EventView view; batch.next(view);) {
          RL_ASSERT(beside[place(view.stored)]($) == view.stored->block_size);
        }
      }
    }
  }
  void after() { log.reset(); }
};

/// One thread announces from a node that it makes in new storage, the other one behind it from a node of the old: it
/// has to find the new storage with the announcement. As shipped only: where it is not found, the process ends.
struct EventGrowthKernel : rl::test_suite<EventGrowthKernel, 2> {
  using Log = EventLog<RelacyAtomic>;
  static constexpr std::size_t kFirstStorage = 64;  ///< nodes
  static constexpr int kPatience = 400;             ///< looks, while the other thread makes its storage
  std::unique_ptr<Log> log;
  std::unique_ptr<RelacyAtomic<int>> announced;  ///< orders nothing
  std::vector<EventDraft> old;

  void before() {
    log = std::make_unique<Log>();
    announced = std::make_unique<RelacyAtomic<int>>();
    for (std::size_t i = 0; i < kFirstStorage; ++i) old.push_back(log->draft());
  }
  void thread(unsigned number) {
    if (number == 0) {
      log->append(log->draft());
      announced->store(1, std::memory_order_relaxed);
    } else {
      for (int i = 0; i < kPatience && announced->load(std::memory_order_relaxed) == 0; ++i) {
      }
      log->append(std::move(old.back()));
    }
  }
  void after() {
    std::size_t read = 0;
    EventBatch batch = log->take_batch();
    for (EventView view; batch.next(view);) ++read;
    RL_ASSERT(read == 2);
    batch = {};
    old.clear();
    log.reset();
    announced.reset();
  }
};

}  // namespace kvpool::model
