// The states that an exploration has reached, and with how few preemptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvpool::model {

/// Open addressing over well-mixed names of states: one look at memory for most questions.
class ReachedStates {
 public:
  ReachedStates() { clear(); }

  /// False if `state` was reached before with at most `preemptions`; else notes that it is now.
  bool reach(std::uint64_t state, int preemptions) {
    const std::uint64_t name = state == kEmpty ? 1 : state;
    std::size_t at = place_of(name);
    if (slots_[at].name == name) {
      if (slots_[at].preemptions <= preemptions) return false;
      slots_[at].preemptions = preemptions;
      return true;
    }
    if (++used_ * 2 > slots_.size()) {
      grow();
      at = place_of(name);
    }
    slots_[at] = {name, preemptions};
    return true;
  }

  void clear() {
    slots_.assign(std::size_t{1} << 12U, Slot{});
    used_ = 0;
  }

 private:
  static constexpr std::uint64_t kEmpty = 0;
  struct Slot {
    std::uint64_t name = kEmpty;
    int preemptions = 0;
  };

  [[nodiscard]] std::size_t place_of(std::uint64_t name) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = static_cast<std::size_t>(name) & mask;
    while (slots_[at].name != kEmpty && slots_[at].name != name) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 4);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.name != kEmpty) slots_[place_of(slot.name)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

}  // namespace kvpool::model
