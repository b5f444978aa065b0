// The CUDA kernels run by the CPU executor on an AttentionCase.
#pragma once

#include "kernels/simt/executor.hpp"
#include "tests/kernels/attention_case.hpp"

namespace kvpool::kernels::test {

struct SimtRun {
  simt::LaunchOptions launch;
  std::int64_t target_blocks = 4;
  PlanCapacity capacity;  ///< given: lists of the length that a plan with this capacity has
};

/// Plan, attend kernel, merge kernel. `status` tells a failed launch or a refusal.
[[nodiscard]] Output run_on_simt(const AttentionCase& c, const SimtRun& run = {});

}  // namespace kvpool::kernels::test
