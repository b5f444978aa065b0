#include "kvpool/pool/event_draft.hpp"

#include <utility>

#include "pool/event_node.hpp"

namespace kvpool {

EventDraft::EventDraft(EventNodeSource& source, EventNode& node) noexcept
    : source_(&source), node_(&node), event_(node.stored.get()) {}

EventDraft::EventDraft(EventDraft&& other) noexcept
    : source_(other.source_),
      node_(std::exchange(other.node_, nullptr)),
      event_(std::exchange(other.event_, nullptr)) {}

EventDraft::~EventDraft() {
  if (node_ == nullptr) return;
  node_->next = nullptr;
  source_->give_back(node_);
}

EventNode* EventDraft::release() noexcept {
  event_ = nullptr;
  return std::exchange(node_, nullptr);
}

}  // namespace kvpool
