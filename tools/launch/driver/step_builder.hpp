// Turns what the scheduler decided into what the ranks are told: table changes, slots, lengths, tokens.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tools/launch/step/step_message.hpp"
#include "tools/scheduler/continuous_scheduler.hpp"

namespace kvpool::launch {

/// Knows which tables the ranks have. Not thread-safe.
class StepBuilder {
 public:
  explicit StepBuilder(std::vector<std::int64_t> block_sizes) : block_sizes_(std::move(block_sizes)) {}

  /// O(tokens + table entries of the step's sequences).
  [[nodiscard]] StepMessage build(const scheduler::StepBatch& batch, std::uint64_t step);

 private:
  using Tables = std::vector<std::vector<std::uint32_t>>;
  std::vector<std::int64_t> block_sizes_;  ///< tokens, per group
  std::unordered_map<std::int64_t, Tables> known_;
};

}  // namespace kvpool::launch
