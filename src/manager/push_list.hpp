// A list that many threads append to and one drains.
#pragma once

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

namespace kvpool {

/// push is lock-free; drain takes everything at once, oldest first. Nodes are never looked at by two
/// threads at the same time after a drain took them, so no reclamation scheme is needed.
template <class T>
class PushList {
 public:
  PushList() noexcept = default;
  PushList(const PushList&) = delete;
  PushList& operator=(const PushList&) = delete;
  ~PushList() { (void)drain(); }

  void push(T value) {
    Node* node = new Node{std::move(value), head_.load(std::memory_order_relaxed)};
    while (!head_.compare_exchange_weak(node->next, node, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

  [[nodiscard]] std::vector<T> drain() {
    std::vector<T> values;
    Node* node = head_.exchange(nullptr, std::memory_order_acquire);
    while (node != nullptr) {
      Node* next = node->next;
      values.push_back(std::move(node->value));
      delete node;
      node = next;
    }
    std::reverse(values.begin(), values.end());
    return values;
  }

 private:
  struct Node {
    T value;
    Node* next;
  };
  std::atomic<Node*> head_{nullptr};
  static_assert(std::atomic<Node*>::is_always_lock_free);
};

}  // namespace kvpool
