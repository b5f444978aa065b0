// A device that is late: it executes the writes of a step long after the host has freed their blocks. With fences no
// such write may land in a block that has another owner by then.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "kvpool/block/block_id.hpp"
#include "stress/ledger.hpp"

namespace kvpool::stress {

struct HeldBlock;

/// Steps first to last - 1, all executed.
struct ExecutedSteps {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

/// It has a lock, which the pool under test has not: nobody is suspended inside, and the pool is told of executed steps
/// by the caller, outside of it.
class LateDevice {
 public:
  LateDevice(const Ledger& ledger, Verdict& verdict) : ledger_(&ledger), verdict_(&verdict) {}

  /// The step writes to all `blocks`, later. Answers the fence under which they may be freed.
  [[nodiscard]] std::uint64_t submit(const std::vector<HeldBlock>& blocks);

  /// Executes the oldest half of the pending steps.
  [[nodiscard]] ExecutedSteps execute_some() { return execute(2); }
  [[nodiscard]] ExecutedSteps execute_all() { return execute(1); }

 private:
  struct Write {
    std::uint64_t step;
    BlockId block;
    std::uint32_t life;
  };
  [[nodiscard]] ExecutedSteps execute(std::uint64_t divisor);

  const Ledger* ledger_;
  Verdict* verdict_;
  std::mutex mutex_;
  std::uint64_t next_step_ = 1;
  std::uint64_t next_executed_ = 1;
  std::vector<Write> pending_;  // oldest first; keeps its memory, so that the lock is not held while memory is awaited
};

}  // namespace kvpool::stress
