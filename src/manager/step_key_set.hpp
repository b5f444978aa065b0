// Keys that were published during the current step: the content behind them is written only when the
// step runs, so no other request may build on it before the next one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvpool/block/block_hash.hpp"

namespace kvpool {

/// A set of 48-bit fingerprints, emptied in O(1) by counting the step. insert and contains are lock-free
/// and may run at any time. A foreign key is taken for a member with a probability below 2^-40, and a
/// crowded table answers "member" for everybody; both only delay an admission by one step.
class StepKeySet {
 public:
  explicit StepKeySet(std::size_t expected_keys);

  void insert(const BlockKey& key) noexcept;
  [[nodiscard]] bool contains(const BlockKey& key) const noexcept;
  void start_step() noexcept { step_.fetch_add(1, std::memory_order_acq_rel); }

 private:
  static constexpr std::size_t kMaxProbes = 32;
  static constexpr unsigned kStepBits = 16;

  [[nodiscard]] std::uint64_t tag(std::uint64_t step, const BlockKey& key) const noexcept;
  [[nodiscard]] std::size_t first_slot(const BlockKey& key) const noexcept;

  std::vector<std::atomic<std::uint64_t>> slots_;
  std::atomic<std::uint64_t> step_{1};
  std::atomic<std::uint64_t> crowded_step_{0};
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
};

}  // namespace kvpool
