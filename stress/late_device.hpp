// A device that is late: it executes the writes of a step long after the host has freed their blocks. With fences no
// such write may land in a block that has another owner by then.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "kvpool/pool/block_pool.hpp"
#include "stress/ledger.hpp"

namespace kvpool::stress {

struct HeldBlock;

class LateDevice {
 public:
  /// The step writes to all `blocks`, later. Answers the fence under which they may be freed.
  [[nodiscard]] std::uint64_t submit(const std::vector<HeldBlock>& blocks, const Ledger& ledger);

  /// Executes the oldest half of the pending steps and lets the pool know.
  void run_some(BlockPool& pool, Ledger& ledger, Verdict& verdict) { run(pool, ledger, verdict, 2); }
  /// Executes everything.
  void run_all(BlockPool& pool, Ledger& ledger, Verdict& verdict) { run(pool, ledger, verdict, 1); }

 private:
  struct Write {
    BlockId block;
    std::uint32_t life;
  };
  struct Step {
    std::uint64_t number;
    std::vector<Write> writes;
  };
  void run(BlockPool& pool, Ledger& ledger, Verdict& verdict, std::size_t divisor);

  std::mutex mutex_;  // the device's own queue; the pool under test has none
  std::uint64_t next_step_ = 1;
  std::deque<Step> pending_;
};

}  // namespace kvpool::stress
