// A sequence's state as the manager's functions use it, and the check that one thread does.
#pragma once

#include "manager/cache_coordinator.hpp"
#include "manager/sequence_state.hpp"

namespace kvpool {

struct Sequence::State : SequenceState {
  explicit State(CacheCoordinator& owner) : coordinator(&owner) { groups.resize(owner.num_groups()); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { coordinator->free(*this); }

  CacheCoordinator* coordinator;
};

/// Marks a sequence as in use for its scope. O(1); stays on in release builds.
class ExclusiveUse {
 public:
  /// Reports ContractBreach::wrong_thread when another call is inside the sequence.
  ExclusiveUse(SequenceState& state, const char* operation);
  ~ExclusiveUse() {
    if (granted_) state_.busy.store(false, std::memory_order_release);
  }
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

  [[nodiscard]] bool granted() const noexcept { return granted_; }

 private:
  SequenceState& state_;
  bool granted_;
};

}  // namespace kvpool
