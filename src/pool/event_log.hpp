// What happened to the pool's content, in one order for all threads.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "block/key_words.hpp"
#include "kvpool/pool/kv_event.hpp"

namespace kvpool {

/// Keys that one call took away, collected by its thread and announced together.
using RemovedKeys = std::vector<KeyWords>;

/// A list that producers push to with one exchange and the consumer takes as a whole: the order of the
/// exchanges is the order of the events. Per-thread queues would need a shared sequence number for every
/// event and a merge; here a call that evicts 64 blocks pays for one node and one exchange.
template <template <class> class Atom>
class EventLog {
 public:
  EventLog() = default;
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;
  ~EventLog() { destroy(head_.load(std::memory_order_acquire)); }  // [E2]

  void append(KVEvent event) {
    auto node = std::make_unique<Node>();
    node->event = std::move(event);
    push(std::move(node));
  }
  void append_removals(RemovedKeys keys) {
    if (keys.empty()) return;
    auto node = std::make_unique<Node>();
    node->removed = std::move(keys);
    push(std::move(node));
  }

  /// Takes everything, oldest first.
  [[nodiscard]] std::vector<KVEvent> take() {
    Node* node = head_.exchange(nullptr, std::memory_order_acq_rel);  // [E2]
    Node* oldest = nullptr;
    std::size_t count = 0;
    while (node != nullptr) {
      count += (node->event ? 1U : 0U) + node->removed.size();
      Node* const next = std::exchange(node->next, oldest);
      oldest = node;
      node = next;
    }
    std::vector<KVEvent> events;
    events.reserve(count);  // an event is large, and growing would move them all
    for (Node* at = oldest; at != nullptr; at = at->next) {
      if (at->event) events.push_back(std::move(*at->event));
      for (const KeyWords& words : at->removed) {
        BlockKey key = words.key();
        BlockRemovedEvent removed;
        removed.block_hashes.push_back(key.hash);
        removed.group_idx = key.group.value();
        events.emplace_back(std::move(removed));
      }
    }
    destroy(oldest);
    return events;
  }

 private:
  struct Node {
    Node* next = nullptr;
    std::optional<KVEvent> event;
    RemovedKeys removed;
  };

  void push(std::unique_ptr<Node> owned) noexcept {
    Node* const node = owned.release();
    Node* head = head_.load(std::memory_order_relaxed);  // [H]
    do {
      node->next = head;
    } while (!head_.compare_exchange_weak(head, node, std::memory_order_release, std::memory_order_relaxed));  // [E1]
  }
  static void destroy(Node* node) noexcept {
    while (node != nullptr) {
      const std::unique_ptr<Node> owned(node);
      node = owned->next;
    }
  }

  static_assert(std::atomic<Node*>::is_always_lock_free);
  Atom<Node*> head_{nullptr};
};

}  // namespace kvpool
