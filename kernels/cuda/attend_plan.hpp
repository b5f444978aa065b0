// How a step is cut for a device, and the kernel parameters of one layer. Host code, the same for a GPU and for the CPU
// executor of kernels/simt.
#pragma once

#include <vector>

#include "kernels/cuda/params.hpp"
#include "kernels/plan_impl.hpp"
#include "kvpool/kernels/cache_ops.hpp"

namespace kvpool::kernels::gpu {

struct AttendPlan {
  int rows_per_block = 4;
  std::int64_t split_size = 0;  ///< keys
  std::vector<RowBlock> blocks;
  std::vector<WorkItem> items;
  std::int64_t num_slots = 0;
};

/// `target_blocks`: thread blocks that fill the device at once (multiprocessors times resident blocks). Without a fixed
/// split, ranges are cut so that items of equal size number about as many. O(blocks + items).
[[nodiscard]] AttendPlan plan_attend(const StepInput& step, std::int64_t target_blocks);

/// Lanes that serve one key: 8, 16 or 32 for rows of up to 64, 128 or 256 elements.
[[nodiscard]] int lanes_for(const AttentionProblem& problem) noexcept;

/// Refuses, by name, what has no device kernel: head sizes that are no multiple of 8 or above 256, fp32 caches, rows
/// that are not aligned to 8 elements, more heads than a launch carries.
[[nodiscard]] Status check_device_problem(const AttentionProblem& problem);
[[nodiscard]] Status check_device_args(const AttentionArgs& args);

/// Parameters without the device pointers of plan and workspace, which the caller fills in.
[[nodiscard]] AttendParams attend_params(const StepInput& step, const AttentionArgs& args);
[[nodiscard]] MergeParams merge_params(const StepInput& step, const AttentionArgs& args, int rows_per_block);
[[nodiscard]] AppendParams append_params(const PagedKvView& kv, const KvScales& scales, const NewRows& rows,
                                         const std::int64_t* slots);

}  // namespace kvpool::kernels::gpu
