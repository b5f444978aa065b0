// What the scheduler threads show each other while they work: who has the youngest request, who needs room.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kvpool::scheduler {

/// Every lane writes its own youngest request and may leave one wish per other lane. Wait-free but for
/// ask(), which is lock-free. All values are hints: a lane decides about its own requests alone.
class LaneBoard {
 public:
  static constexpr std::int64_t kNone = -1;

  explicit LaneBoard(std::size_t lanes) : slots_(lanes) {}

  /// Youngest running request of `lane`, kNone when it has none; and how many it runs.
  void show(std::size_t lane, std::int64_t youngest, std::int64_t running) noexcept {
    slots_[lane].youngest.store(youngest, std::memory_order_release);
    slots_[lane].running.store(running, std::memory_order_release);
  }

  struct Youngest {
    std::size_t lane = 0;
    std::int64_t index = kNone;
  };
  /// The youngest running request of all lanes. O(lanes).
  [[nodiscard]] Youngest youngest() const noexcept;

  /// Running requests of all lanes. O(lanes).
  [[nodiscard]] std::int64_t num_running() const noexcept;

  /// The waiting request for which `lane` found no room, kNone when there is none.
  void show_blocked(std::size_t lane, std::int64_t index) noexcept {
    slots_[lane].blocked.store(index, std::memory_order_release);
  }

  /// Whether a lane has an older request than `index` that waits for room: then `index` must not be admitted, or
  /// small requests would overtake a large one for ever. O(lanes).
  [[nodiscard]] bool older_is_blocked(std::int64_t index) const noexcept;

  /// Asks `lane` to preempt its youngest request for `asker`; of several wishes the oldest asker's counts.
  void ask(std::size_t lane, std::int64_t asker) noexcept;

  /// Takes the wish left for `lane`: the request that needs room.
  [[nodiscard]] std::optional<std::int64_t> take_wish(std::size_t lane) noexcept;

  /// A running request found no blocks: nobody is admitted in the next step.
  void report_shortage() noexcept { shortage_.store(true, std::memory_order_release); }
  [[nodiscard]] bool take_shortage() noexcept { return shortage_.exchange(false, std::memory_order_acq_rel); }

 private:
  struct alignas(64) Slot {
    std::atomic<std::int64_t> youngest{kNone};
    std::atomic<std::int64_t> running{0};
    std::atomic<std::int64_t> blocked{kNone};
    std::atomic<std::int64_t> wish{kNone};
  };
  std::vector<Slot> slots_;
  std::atomic<bool> shortage_{false};
};

}  // namespace kvpool::scheduler
