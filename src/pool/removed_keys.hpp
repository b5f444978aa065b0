// Keys that one call takes away, collected by its thread and announced together.
#pragma once

#include <cstdint>
#include <utility>

#include "block/key_words.hpp"
#include "pool/event_node.hpp"

namespace kvpool {

/// Written to where they will be read: into a node that the log takes over as it is. Without a key there is no node.
class RemovedKeys {
 public:
  RemovedKeys() noexcept = default;
  RemovedKeys(EventNodeSource& source, std::uint32_t lane) noexcept : source_(&source), lane_(lane) {}
  RemovedKeys(RemovedKeys&& other) noexcept
      : source_(other.source_), node_(std::exchange(other.node_, nullptr)), lane_(other.lane_) {}
  RemovedKeys& operator=(RemovedKeys&&) = delete;
  RemovedKeys(const RemovedKeys&) = delete;
  RemovedKeys& operator=(const RemovedKeys&) = delete;
  ~RemovedKeys() {
    if (node_ != nullptr) {
      node_->next = nullptr;
      source_->give_back(node_);
    }
  }

  /// Nobody has said yet where the node is to come from.
  [[nodiscard]] bool unattached() const noexcept { return source_ == nullptr; }
  void attach(EventNodeSource& source, std::uint32_t lane) noexcept {
    source_ = &source;
    lane_ = lane;
  }

  [[nodiscard]] bool empty() const noexcept { return node_ == nullptr; }

  /// Precondition: attached.
  void push_back(const KeyWords& key) {
    if (node_ == nullptr) node_ = &source_->take(EventNode::Kind::removed, lane_);
    node_->removed.push_back(key.key());
  }

  /// The node, now the caller's; null: no key.
  [[nodiscard]] EventNode* release() noexcept { return std::exchange(node_, nullptr); }

 private:
  EventNodeSource* source_ = nullptr;
  EventNode* node_ = nullptr;
  std::uint32_t lane_ = 0;
};

}  // namespace kvpool
