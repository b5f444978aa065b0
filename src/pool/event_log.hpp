// What happened to the pool's content, in one order for all threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "kvpool/foundation/contract.hpp"
#include "kvpool/pool/event_batch.hpp"
#include "kvpool/pool/event_draft.hpp"
#include "pool/event_node.hpp"
#include "pool/event_nodes.hpp"
#include "pool/removed_keys.hpp"

namespace kvpool {

/// A list that producers push to with one exchange and a consumer takes as a whole: the order of the
/// exchanges is the order of the events. Per-thread queues would need a shared sequence number for every
/// event and a merge; here a call that evicts 64 blocks pays for one node and one exchange.
///
/// The list's head counts the batches taken: consumers that take by turns know from the exchange that gave them a batch
/// where it belongs, so none has to wait for another one to have read his.
template <template <class> class Atom>
class EventLog {
 public:
  /// Threads that work on different lanes do not share the nodes they fill.
  explicit EventLog(std::uint32_t lanes = 1) : nodes_(std::make_shared<EventNodes<Atom>>(lanes)) {}
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;
  ~EventLog() { static_cast<void>(take_batch()); }

  [[nodiscard]] EventNodeSource& nodes() noexcept { return *nodes_; }

  void append(KVEvent event, std::uint32_t lane = 0) {
    if (auto* const stored = std::get_if<BlockStoredEvent>(&event)) {
      EventNode& node = nodes_->take(EventNode::Kind::stored, lane);
      *node.stored = std::move(*stored);
      push(node);
    } else {
      auto other = std::make_unique<KVEvent>(std::move(event));
      EventNode& node = nodes_->take(EventNode::Kind::removed, lane);
      node.other = std::move(other);
      push(node);
    }
  }
  [[nodiscard]] EventDraft draft(std::uint32_t lane = 0) {
    return {*nodes_, nodes_->take(EventNode::Kind::stored, lane)};
  }
  /// A draft of another log is reported and left to its owner: the numbers of its nodes mean other nodes here.
  void append(EventDraft&& draft) {
    if (draft.source_ != nodes_.get()) {
      report_contract_violation({ContractBreach::foreign_handle, "append_event: a draft of another pool"});
    } else if (EventNode* const node = draft.release()) {
      push(*node);
    }
  }
  void append_removals(RemovedKeys keys) noexcept {
    if (EventNode* const node = keys.release()) push(*node);
  }

  /// Takes everything as it was recorded.
  [[nodiscard]] EventBatch take_batch() noexcept {
    std::uint64_t head = head_.load(std::memory_order_acquire);  // [E2]
    do {
      if (top_of(head) == kNone) return {nodes_, nullptr, 0, batches_of(head)};
    } while (!head_.compare_exchange_weak(head, word(batches_of(head) + 1, kNone), std::memory_order_acq_rel,
                                          std::memory_order_acquire));  // [E2]
    EventNode* node = &(*nodes_)[top_of(head)];
    EventNode* oldest = nullptr;
    std::size_t count = 0;
    while (node != nullptr) {
      count += node->count();
      EventNode* const next = std::exchange(node->next, oldest);
      oldest = node;
      node = next;
    }
    return {nodes_, oldest, count, batches_of(head)};
  }
  /// The same as events, oldest first.
  [[nodiscard]] std::vector<KVEvent> take() { return take_batch().build(); }

 private:
  void push(EventNode& node) noexcept {
    // The number of another thread's node is of use only to who sees the storage that it was made in.
    std::uint64_t head = head_.load(std::memory_order_acquire);  // [E2] to be hung behind
    do {
      node.next = top_of(head) == kNone ? nullptr : &(*nodes_)[top_of(head)];
    } while (!head_.compare_exchange_weak(head, word(batches_of(head), node.number), std::memory_order_acq_rel,
                                          std::memory_order_acquire));  // [E1] [E2]
  }

  static constexpr std::uint32_t kNone = 0xffffffffU;
  static constexpr std::uint32_t top_of(std::uint64_t head) noexcept { return static_cast<std::uint32_t>(head); }
  static constexpr std::uint32_t batches_of(std::uint64_t head) noexcept {
    return static_cast<std::uint32_t>(head >> 32U);
  }
  static constexpr std::uint64_t word(std::uint32_t batches, std::uint32_t top) noexcept {
    return (std::uint64_t{batches} << 32U) | top;
  }

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  Atom<std::uint64_t> head_{word(0, kNone)};  ///< batches taken:32 | newest node:32
  std::shared_ptr<EventNodes<Atom>> nodes_;   ///< shared with batches, which may live longer
};

}  // namespace kvpool
