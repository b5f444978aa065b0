// Which shard a thread works on: its processor's.
#pragma once

#include <sched.h>

#include <cstdint>

namespace kvpool {

/// The processor the thread runs on now: a hint, since it may move at any time. Costs a few nanoseconds.
struct CurrentCpu {
  [[nodiscard]] static std::uint32_t hint() noexcept {
    const int cpu = sched_getcpu();
    return cpu < 0 ? 0U : static_cast<std::uint32_t>(cpu);
  }
};

}  // namespace kvpool
