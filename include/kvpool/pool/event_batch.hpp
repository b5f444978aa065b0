// Announcements of a pool as they were recorded, for consumers that serialise them and need no containers of their own.
#pragma once

#include <cstddef>
#include <vector>

#include "kvpool/block/block_hash.hpp"
#include "kvpool/pool/kv_event.hpp"

namespace kvpool {

struct EventNode;

/// One announcement. Exactly one of the three is set.
struct EventView {
  const BlockStoredEvent* stored = nullptr;  ///< lives as long as its batch
  const BlockKey* removed = nullptr;         ///< until the next call of EventBatch::next
  bool cleared = false;                      ///< every key at once
};

/// Everything that was announced up to one moment, oldest first. A removed key is read from where the call that took
/// it away noted it: nothing is allocated for it. Belongs to one thread.
class EventBatch {
 public:
  EventBatch() noexcept = default;
  EventBatch(EventBatch&& other) noexcept;
  EventBatch& operator=(EventBatch&& other) noexcept;
  ~EventBatch();

  /// Announcements that next() has not shown yet. O(1).
  [[nodiscard]] std::size_t size() const noexcept { return left_; }

  /// Shows the next announcement; false: there is none. Forgets those before it, as memory goes. O(1).
  [[nodiscard]] bool next(EventView& view) noexcept;

  /// What next() has not shown yet, as events of their own. O(size()).
  [[nodiscard]] std::vector<KVEvent> build() &&;

 private:
  template <template <class> class Atom>
  friend class EventLog;
  EventBatch(EventNode* oldest, std::size_t count) noexcept : first_(oldest), left_(count) {}
  void drop_first() noexcept;

  EventNode* first_ = nullptr;  ///< of a list; owned
  std::size_t shown_ = 0;       ///< of the first node
  std::size_t left_ = 0;
  BlockKey removed_;
};

}  // namespace kvpool
