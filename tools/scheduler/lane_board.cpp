#include "tools/scheduler/lane_board.hpp"

namespace kvpool::scheduler {

LaneBoard::Youngest LaneBoard::youngest() const noexcept {
  Youngest result;
  for (std::size_t lane = 0; lane < slots_.size(); ++lane) {
    const std::int64_t index = slots_[lane].youngest.load(std::memory_order_acquire);
    if (index > result.index) result = {lane, index};
  }
  return result;
}

std::int64_t LaneBoard::num_running() const noexcept {
  std::int64_t running = 0;
  for (const Slot& slot : slots_) running += slot.running.load(std::memory_order_acquire);
  return running;
}

bool LaneBoard::older_is_blocked(std::int64_t index) const noexcept {
  for (const Slot& slot : slots_) {
    const std::int64_t blocked = slot.blocked.load(std::memory_order_acquire);
    if (blocked != kNone && blocked < index) return true;
  }
  return false;
}

void LaneBoard::ask(std::size_t lane, std::int64_t asker) noexcept {
  std::atomic<std::int64_t>& wish = slots_[lane].wish;
  std::int64_t present = wish.load(std::memory_order_relaxed);
  while ((present == kNone || asker < present) &&
         !wish.compare_exchange_weak(present, asker, std::memory_order_acq_rel, std::memory_order_relaxed)) {
  }
}

std::optional<std::int64_t> LaneBoard::take_wish(std::size_t lane) noexcept {
  const std::int64_t asker = slots_[lane].wish.exchange(kNone, std::memory_order_acq_rel);
  if (asker == kNone) return std::nullopt;
  return asker;
}

}  // namespace kvpool::scheduler
