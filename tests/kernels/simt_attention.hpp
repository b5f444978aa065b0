// The CUDA kernels run by the CPU executor on an AttentionCase.
#pragma once

#include "kernels/cuda/launchers.hpp"
#include "kernels/simt/executor.hpp"
#include "tests/kernels/attention_case.hpp"

namespace kvpool::kernels::test {

#if defined(KVPOOL_SIMT_TSAN)
inline constexpr bool kSlow = true;  // tens of microseconds per switch
#else
inline constexpr bool kSlow = false;
#endif

struct SimtRun {
  simt::LaunchOptions launch;
  std::int64_t target_blocks = 4;
  PlanCapacity capacity;  ///< given: lists of the length that a plan with this capacity has
};

/// One launch of partial attention, with the kernel that the launchers of kernels/cuda would take.
[[nodiscard]] simt::LaunchResult attend_on_simt(DType cache, const gpu::AttendChoice& choice,
                                                const gpu::AttendParams& params, std::size_t items,
                                                const simt::LaunchOptions& options);

/// Plan, attend kernel, merge kernel. `status` tells a failed launch or a refusal.
[[nodiscard]] Output run_on_simt(const AttentionCase& c, const SimtRun& run = {});

/// A prompt of 24 tokens of which the eleventh has a NaN among its values: queries before it do not see it, all others
/// do. For 16-bit caches.
void expect_future_nan_stays_behind(CaseSpec spec);

/// Backwards, at random, with copies that arrive early, on two threads: no bit changes.
void expect_same_bits_on_every_schedule(const CaseSpec& spec);

}  // namespace kvpool::kernels::test
