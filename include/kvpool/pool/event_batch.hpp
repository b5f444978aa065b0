// Announcements of a pool as they were recorded, for consumers that serialise them and need no containers of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kvpool/block/block_hash.hpp"
#include "kvpool/pool/kv_event.hpp"

namespace kvpool {

class EventNodeSource;
struct EventNode;

/// One announcement. Exactly one of the four is set; pointers are good until the next call of EventBatch::next.
struct EventView {
  const BlockStoredEvent* stored = nullptr;
  const BlockKey* removed = nullptr;             ///< a key that the pool took away, medium "GPU"
  const BlockRemovedEvent* announced = nullptr;  ///< a removal that was given to append_event
  bool cleared = false;                          ///< every key at once
};

/// Everything that was announced up to one moment, oldest first. A removed key is read from where the call that took
/// it away noted it: nothing is allocated for it. What has been shown goes back to the pool and is written again by
/// whoever announces next. Belongs to one thread; may outlive its pool.
class EventBatch {
 public:
  EventBatch() noexcept = default;
  EventBatch(EventBatch&& other) noexcept;
  EventBatch& operator=(EventBatch&& other) noexcept;
  ~EventBatch();  ///< Gives back what has not been shown as well. Lock-free, O(calls that announced it).

  /// How many batches of the pool hold what was announced before this one, modulo 2^32; empty ones are not counted.
  /// Where several threads take by turns, this is how what they took fits together. O(1).
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }

  /// Announcements that next() has not shown yet. O(1).
  [[nodiscard]] std::size_t size() const noexcept { return left_; }

  /// Shows the next announcement; false: there is none. Forgets those before it, as memory goes. Lock-free, O(1) on
  /// average.
  [[nodiscard]] bool next(EventView& view) noexcept {
    if (key_ == end_of_keys_) return show_node(view);
    view = {.removed = key_++};
    --left_;
    return true;
  }

  /// What next() has not shown yet, as events of their own. O(size()).
  [[nodiscard]] std::vector<KVEvent> build() &&;

 private:
  template <template <class> class Atom>
  friend class EventLog;
  EventBatch(std::shared_ptr<EventNodeSource> nodes, EventNode* oldest, std::size_t count,
             std::uint32_t number) noexcept
      : nodes_(std::move(nodes)), first_(oldest), left_(count), number_(number) {}
  [[nodiscard]] bool show_node(EventView& view) noexcept;
  void drop_shown() noexcept;
  void drop_all() noexcept;

  std::shared_ptr<EventNodeSource> nodes_;
  EventNode* shown_ = nullptr;             ///< what the last view was of; goes back when the next one is shown
  EventNode* first_ = nullptr;             ///< of a list of nodes not begun yet
  EventNode* read_ = nullptr;              ///< of a list; goes back in portions
  const BlockKey* key_ = nullptr;          ///< of the node shown
  const BlockKey* end_of_keys_ = nullptr;  ///< of the node shown
  std::size_t read_count_ = 0;
  std::size_t left_ = 0;
  std::uint32_t number_ = 0;
};

}  // namespace kvpool
