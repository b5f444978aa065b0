// What happened to the pool's content, in one order for all threads.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "kvpool/pool/event_batch.hpp"
#include "pool/event_node.hpp"

namespace kvpool {

/// A list that producers push to with one exchange and the consumer takes as a whole: the order of the
/// exchanges is the order of the events. Per-thread queues would need a shared sequence number for every
/// event and a merge; here a call that evicts 64 blocks pays for one node and one exchange.
template <template <class> class Atom>
class EventLog {
 public:
  EventLog() = default;
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;
  ~EventLog() { static_cast<void>(take_batch()); }

  void append(KVEvent event) { push(std::make_unique<EventNode>(std::move(event))); }
  void append_removals(RemovedKeys keys) {
    if (!keys.empty()) push(std::make_unique<EventNode>(std::move(keys)));
  }

  /// Takes everything as it was recorded.
  [[nodiscard]] EventBatch take_batch() noexcept {
    EventNode* node = head_.exchange(nullptr, std::memory_order_acq_rel);  // [E2]
    EventNode* oldest = nullptr;
    std::size_t count = 0;
    while (node != nullptr) {
      count += node->count();
      EventNode* const next = std::exchange(node->next, oldest);
      oldest = node;
      node = next;
    }
    return {oldest, count};
  }
  /// The same as events, oldest first.
  [[nodiscard]] std::vector<KVEvent> take() { return take_batch().build(); }

 private:
  void push(std::unique_ptr<EventNode> owned) noexcept {
    EventNode* const node = owned.release();
    EventNode* head = head_.load(std::memory_order_relaxed);  // [H]
    do {
      node->next = head;
    } while (!head_.compare_exchange_weak(head, node, std::memory_order_release, std::memory_order_relaxed));  // [E1]
  }

  static_assert(std::atomic<EventNode*>::is_always_lock_free);
  Atom<EventNode*> head_{nullptr};
};

}  // namespace kvpool
