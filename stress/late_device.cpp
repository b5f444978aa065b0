#include "stress/late_device.hpp"

#include <string>

#include "stress/stall.hpp"
#include "stress/worker.hpp"

namespace kvpool::stress {

std::uint64_t LateDevice::submit(const std::vector<HeldBlock>& blocks) {
  const StallsPutOff put_off;
  const std::lock_guard lock(mutex_);
  const std::uint64_t step = next_step_++;
  for (const HeldBlock& held : blocks) pending_.push_back({step, held.block, ledger_->life(held.block)});
  return step;
}

ExecutedSteps LateDevice::execute(std::uint64_t divisor) {
  const StallsPutOff put_off;
  const std::lock_guard lock(mutex_);
  const std::uint64_t end = next_executed_ + (next_step_ - next_executed_ + divisor - 1) / divisor;
  auto write = pending_.begin();
  for (; write != pending_.end() && write->step < end; ++write) {
    if (ledger_->life(write->block) != write->life) {
      verdict_->fail("a write of step " + std::to_string(write->step) + " landed in block " +
                     std::to_string(write->block.value()) + ", which has another owner");
    }
  }
  pending_.erase(pending_.begin(), write);
  const ExecutedSteps executed{next_executed_, end};
  next_executed_ = end;
  return executed;
}

}  // namespace kvpool::stress
