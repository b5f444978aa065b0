#include "kvpool/pool/event_batch.hpp"

#include <utility>
#include <variant>

#include "foundation/prefetch.hpp"
#include "pool/event_node.hpp"

namespace kvpool {
namespace {

/// Nodes that go back together: an exchange per lane among them.
constexpr std::size_t kPortion = 64;

void prefetch_payload(const EventNode* node) noexcept {
  if (node == nullptr) return;
  prefetch_to_read(node->kind == EventNode::Kind::stored ? static_cast<const void*>(node->stored.get())
                                                         : static_cast<const void*>(node->removed.data()));
}

}  // namespace

EventBatch::EventBatch(EventBatch&& other) noexcept
    : nodes_(std::move(other.nodes_)),
      shown_(std::exchange(other.shown_, nullptr)),
      first_(std::exchange(other.first_, nullptr)),
      read_(std::exchange(other.read_, nullptr)),
      key_(std::exchange(other.key_, nullptr)),
      end_of_keys_(std::exchange(other.end_of_keys_, nullptr)),
      read_count_(std::exchange(other.read_count_, 0)),
      left_(std::exchange(other.left_, 0)),
      number_(other.number_) {}

EventBatch& EventBatch::operator=(EventBatch&& other) noexcept {
  if (this != &other) {
    drop_all();
    nodes_ = std::move(other.nodes_);
    shown_ = std::exchange(other.shown_, nullptr);
    first_ = std::exchange(other.first_, nullptr);
    read_ = std::exchange(other.read_, nullptr);
    key_ = std::exchange(other.key_, nullptr);
    end_of_keys_ = std::exchange(other.end_of_keys_, nullptr);
    read_count_ = std::exchange(other.read_count_, 0);
    left_ = std::exchange(other.left_, 0);
    number_ = other.number_;
  }
  return *this;
}

EventBatch::~EventBatch() { drop_all(); }

void EventBatch::drop_shown() noexcept {
  if (shown_ == nullptr) return;
  shown_->next = read_;
  read_ = std::exchange(shown_, nullptr);
  if (++read_count_ == kPortion) {
    nodes_->give_back(std::exchange(read_, nullptr));
    read_count_ = 0;
  }
}

void EventBatch::drop_all() noexcept {
  drop_shown();
  if (read_ != nullptr) nodes_->give_back(std::exchange(read_, nullptr));
  if (first_ != nullptr) nodes_->give_back(std::exchange(first_, nullptr));
  key_ = end_of_keys_ = nullptr;
  read_count_ = 0;
  left_ = 0;
}

bool EventBatch::show_node(EventView& view) noexcept {
  drop_shown();
  view = {};
  if (first_ == nullptr) return false;
  shown_ = std::exchange(first_, first_->next);
  prefetch_payload(first_);
  --left_;
  if (shown_->kind == EventNode::Kind::stored) {
    view.stored = shown_->stored.get();
  } else if (shown_->other == nullptr) {
    key_ = shown_->removed.data();
    end_of_keys_ = key_ + shown_->removed.size();
    view.removed = key_++;
  } else {
    view.announced = std::get_if<BlockRemovedEvent>(shown_->other.get());
    view.cleared = view.announced == nullptr;
  }
  return true;
}

std::vector<KVEvent> EventBatch::build() && {
  std::vector<KVEvent> events;
  events.reserve(left_);  // an event is large, and growing would move them all
  for (EventView view; next(view);) {
    if (view.removed != nullptr) {
      BlockRemovedEvent removed;
      removed.block_hashes.push_back(view.removed->hash);
      removed.group_idx = view.removed->group.value();
      events.emplace_back(std::move(removed));
    } else if (view.stored != nullptr) {
      events.emplace_back(std::move(*shown_->stored));
    } else {
      events.push_back(std::move(*shown_->other));
    }
  }
  return events;
}

}  // namespace kvpool
