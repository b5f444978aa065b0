// What one call announced, in a list that goes from new to old in the log and from old to new in a batch.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "block/key_words.hpp"
#include "kvpool/pool/kv_event.hpp"

namespace kvpool {

/// Keys that one call took away, collected by its thread and announced together.
using RemovedKeys = std::vector<KeyWords>;

/// Either one event or removed keys. The event, which is large, has memory only where there is one.
struct EventNode {
  explicit EventNode(KVEvent&& announced) : event(std::make_unique<KVEvent>(std::move(announced))) {}
  explicit EventNode(RemovedKeys&& keys) noexcept : removed(std::move(keys)) {}

  [[nodiscard]] std::size_t count() const noexcept { return event ? 1 : removed.size(); }

  EventNode* next = nullptr;
  std::unique_ptr<KVEvent> event;
  RemovedKeys removed;
};

}  // namespace kvpool
