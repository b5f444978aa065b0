// What one call announced, in a list that goes from new to old in the log and from old to new in a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvpool/block/block_hash.hpp"
#include "kvpool/pool/kv_event.hpp"

namespace kvpool {

/// A store, or keys that one call took away, or in place of keys another event. Containers keep their memory from one
/// use to the next.
struct EventNode {
  enum class Kind : std::uint8_t { stored, removed };

  [[nodiscard]] std::size_t count() const noexcept {
    return kind == Kind::stored || other != nullptr ? 1 : removed.size();
  }

  EventNode* next = nullptr;
  std::uint32_t number = 0;
  std::uint16_t lane = 0;  ///< whose thread has it or had it last
  Kind kind = Kind::stored;
  std::vector<BlockKey> removed;
  std::unique_ptr<BlockStoredEvent> stored;
  std::unique_ptr<KVEvent> other;  ///< seldom: not worth recycling
};

/// Where nodes come from and where they go.
class EventNodeSource {
 public:
  virtual ~EventNodeSource() = default;
  /// An empty node for a thread that works on `lane`.
  [[nodiscard]] virtual EventNode& take(EventNode::Kind kind, std::uint32_t lane) = 0;
  /// Takes back a list of nodes.
  virtual void give_back(EventNode* nodes) noexcept = 0;
};

}  // namespace kvpool
