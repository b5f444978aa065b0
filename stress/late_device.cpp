#include "stress/late_device.hpp"

#include <string>
#include <utility>

#include "stress/worker.hpp"

namespace kvpool::stress {

std::uint64_t LateDevice::submit(const std::vector<HeldBlock>& blocks, const Ledger& ledger) {
  Step step;
  for (const HeldBlock& held : blocks) step.writes.push_back({held.block, ledger.life(held.block)});
  const std::lock_guard lock(mutex_);
  step.number = next_step_++;
  pending_.push_back(std::move(step));
  return pending_.back().number;
}

void LateDevice::run(BlockPool& pool, Ledger& ledger, Verdict& verdict, std::size_t divisor) {
  const std::lock_guard lock(mutex_);
  const std::size_t count = (pending_.size() + divisor - 1) / divisor;
  for (std::size_t i = 0; i < count; ++i) {
    const Step step = std::move(pending_.front());
    pending_.pop_front();
    for (const Write& write : step.writes) {
      if (ledger.life(write.block) != write.life) {
        verdict.fail("a write of step " + std::to_string(step.number) + " landed in block " +
                     std::to_string(write.block.value()) + ", which has another owner");
      }
    }
    pool.advance_fence(step.number);
  }
}

}  // namespace kvpool::stress
