// How a step is cut for a device, and the kernel parameters of one layer. Host code, the same for a GPU and for the CPU
// executor of kernels/simt.
#pragma once

#include <vector>

#include "kernels/cuda/params.hpp"
#include "kernels/plan_impl.hpp"
#include "kvpool/kernels/cache_ops.hpp"

namespace kvpool::kernels::gpu {

/// Which kernel a work item is for, and with it the height of its row blocks.
enum class AttendKernel {
  cores,  ///< CUDA cores: up to 4 rows, or 1 when a KV head has one query head
  mma,    ///< tensor cores: up to kMmaRows rows
};

struct AttendPlan {
  std::int64_t split_size = 0;  ///< keys
  std::int64_t num_slots = 0;   ///< rows of partial results for each KV head
  int rows_per_block = 1;       ///< the largest height of a row block
  std::vector<RowBlock> blocks;
  std::vector<WorkItem> core_items;
  std::vector<WorkItem> mma_items;
};

/// Rows of a block for CUDA cores.
[[nodiscard]] int core_rows(const StepInput& step) noexcept;
/// A sequence goes to the tensor cores when its rows (queries times group) do not fit one block for CUDA cores, or its
/// heads are wider than those take. It depends on nothing else in the batch.
[[nodiscard]] AttendKernel kernel_for(const StepInput& step, std::int64_t sequence) noexcept;

/// `target_blocks`: thread blocks that fill the device at once (multiprocessors times resident blocks). Without a fixed
/// split, ranges are cut so that items of equal size number about as many. O(blocks + items); reuses the memory of
/// `plan`.
void plan_attend(const StepInput& step, std::int64_t target_blocks, AttendPlan& plan);

/// The longest lists that any step within `capacity` can have: what plans of a fixed size allocate.
struct PlanLimits {
  std::int64_t blocks = 0;
  std::int64_t items = 0;  ///< of either kernel
  std::int64_t slots = 0;
};
[[nodiscard]] PlanLimits plan_limits(const AttentionProblem& problem, const PlanCapacity& capacity,
                                     std::int64_t target_blocks) noexcept;
/// Fills the lists up to `limits` with entries that mean no work. Precondition: plan made within the capacity.
void pad_plan(AttendPlan& plan, const PlanLimits& limits);

/// Lanes that serve one key on CUDA cores: 8, 16 or 32 for rows of up to 64, 128 or 256 elements.
[[nodiscard]] int lanes_for(const AttentionProblem& problem) noexcept;
[[nodiscard]] bool is_latent(const AttentionProblem& problem) noexcept;

/// Refuses, by name, what has no device kernel: head sizes that are no multiple of 8 or above 256 (but for 576 with 512
/// of latent attention), fp32 caches, rows that are not aligned to 8 elements, more heads than a launch carries.
[[nodiscard]] Status check_device_problem(const AttentionProblem& problem);
[[nodiscard]] Status check_device_args(const AttentionArgs& args);

/// Parameters without the device pointers of plan and workspace, which the caller fills in.
[[nodiscard]] AttendParams attend_params(const StepInput& step, const AttentionArgs& args);
[[nodiscard]] MergeParams merge_params(const StepInput& step, const AttentionArgs& args, int rows_per_block);
[[nodiscard]] AppendParams append_params(const PagedKvView& kv, const KvScales& scales, const NewRows& rows,
                                         const std::int64_t* slots);

}  // namespace kvpool::kernels::gpu
