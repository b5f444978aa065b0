#include "kvpool/pool/event_batch.hpp"

#include <utility>
#include <variant>

#include "pool/event_node.hpp"

namespace kvpool {

EventBatch::EventBatch(EventBatch&& other) noexcept
    : first_(std::exchange(other.first_, nullptr)),
      shown_(std::exchange(other.shown_, 0)),
      left_(std::exchange(other.left_, 0)) {}

EventBatch& EventBatch::operator=(EventBatch&& other) noexcept {
  if (this != &other) {
    while (first_ != nullptr) drop_first();
    first_ = std::exchange(other.first_, nullptr);
    shown_ = std::exchange(other.shown_, 0);
    left_ = std::exchange(other.left_, 0);
  }
  return *this;
}

EventBatch::~EventBatch() {
  while (first_ != nullptr) drop_first();
}

void EventBatch::drop_first() noexcept {
  const std::unique_ptr<EventNode> owned(first_);
  first_ = owned->next;
  shown_ = 0;
}

bool EventBatch::next(EventView& view) noexcept {
  view = {};
  while (first_ != nullptr && shown_ == first_->count()) drop_first();
  if (first_ == nullptr) return false;
  const std::size_t at = shown_++;
  --left_;
  if (first_->event == nullptr) {
    removed_ = first_->removed[at].key();
    view.removed = &removed_;
  } else {
    view.stored = std::get_if<BlockStoredEvent>(first_->event.get());
    view.cleared = view.stored == nullptr;
  }
  return true;
}

std::vector<KVEvent> EventBatch::build() && {
  std::vector<KVEvent> events;
  events.reserve(left_);  // an event is large, and growing would move them all
  for (; first_ != nullptr; drop_first()) {
    if (first_->event != nullptr && shown_ == 0) events.push_back(std::move(*first_->event));
    for (; first_->event == nullptr && shown_ < first_->removed.size(); ++shown_) {
      const BlockKey key = first_->removed[shown_].key();
      BlockRemovedEvent removed;
      removed.block_hashes.push_back(key.hash);
      removed.group_idx = key.group.value();
      events.emplace_back(std::move(removed));
    }
  }
  left_ = 0;
  return events;
}

}  // namespace kvpool
