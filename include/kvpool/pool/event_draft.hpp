// A store that is being put together where it will be read.
#pragma once

#include "kvpool/pool/kv_event.hpp"

namespace kvpool {

class EventNodeSource;
struct EventNode;

/// A BlockStoredEvent with every member at its default, in memory that announcements read before have left: containers
/// are empty and keep what they had grown to. Fill it and move it into append_event of the pool it is from; dropped,
/// nothing is announced. Belongs to one thread and must not outlive its pool. A thread may hold several, for any time.
class [[nodiscard]] EventDraft {
 public:
  EventDraft(EventDraft&& other) noexcept;
  EventDraft& operator=(EventDraft&&) = delete;
  EventDraft(const EventDraft&) = delete;
  EventDraft& operator=(const EventDraft&) = delete;
  ~EventDraft();

  /// Precondition: not moved from.
  [[nodiscard]] BlockStoredEvent& operator*() const noexcept { return *event_; }
  [[nodiscard]] BlockStoredEvent* operator->() const noexcept { return event_; }

 private:
  template <template <class> class Atom>
  friend class EventLog;
  EventDraft(EventNodeSource& source, EventNode& node) noexcept;
  [[nodiscard]] EventNode* release() noexcept;

  EventNodeSource* source_;
  EventNode* node_;
  BlockStoredEvent* event_;
};

}  // namespace kvpool
