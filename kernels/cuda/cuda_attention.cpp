// The cuda plan: cut on the host, uploaded once, two launches per layer.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cache_ops_backends.hpp"
#include "kernels/cuda/attend_plan.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/launchers.hpp"
#include "kernels/cuda/runtime.hpp"

namespace kvpool::kernels {
namespace {

using gpu::as_status;
using gpu::DeviceGuard;
using gpu::StreamMemory;

cudaStream_t stream_of(const ExecOptions& exec) { return static_cast<cudaStream_t>(exec.stream); }

int width_of(const AttentionProblem& problem) { return gpu::lanes_for(problem) * 8; }

/// Thread blocks the device holds at once, bounded by shared memory; most steps use one kernel only.
std::int64_t resident_blocks(const StepInput& step) {
  int processors = 0;
  if (cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, step.exec.device) != cudaSuccess)
    processors = 1;
  const bool mma = step.group() > 4 || gpu::is_latent(step.problem);
  const bool wide = width_of(step.problem) == 256;
  return static_cast<std::int64_t>(processors) * (mma ? (wide ? 2 : 3) : (wide ? 1 : 2));
}

cudaError_t launch_attend_of(DType cache, const gpu::AttendParams& params, const gpu::AttendChoice& choice, int items,
                             cudaStream_t stream) {
  switch (cache) {
    case DType::float16: return gpu::launch_attend_fp16(params, choice, items, stream);
    case DType::bfloat16: return gpu::launch_attend_bf16(params, choice, items, stream);
    case DType::fp8_e4m3: return gpu::launch_attend_e4m3(params, choice, items, stream);
    case DType::fp8_e5m2: return gpu::launch_attend_e5m2(params, choice, items, stream);
    case DType::float32:
    case DType::uint8: break;
  }
  return cudaErrorInvalidValue;
}

class CudaPlan final : public AttentionPlan::Impl {
 public:
  CudaPlan(StepInput step, const PlanCapacity& capacity)
      : Impl(std::move(step)), fixed_(capacity.max_sequences > 0), target_blocks_(resident_blocks(step_)) {
    if (fixed_) limits_ = gpu::plan_limits(step_.problem, capacity, target_blocks_);
  }

  ~CudaPlan() override {
    const DeviceGuard guard(step_.exec.device);  // memory goes back to the stream of that device
    core_items_ = {};
    mma_items_ = {};
    blocks_ = {};
    out_ = {};
    lse_ = {};
  }

  [[nodiscard]] Status prepare() {
    const DeviceGuard guard(step_.exec.device);
    if (Status status = guard.status(); !status) return status;
    make_lists();
    const std::int64_t slots = fixed_ ? limits_.slots : plan_.num_slots;
    const auto rows = static_cast<std::size_t>(slots * step_.problem.num_kv_heads);
    const auto dim_v = static_cast<std::size_t>(step_.problem.head_dim_v);
    const cudaStream_t stream = stream_of(step_.exec);
    Status status = core_items_.allocate(bytes_of(plan_.core_items), stream);
    if (status) status = mma_items_.allocate(bytes_of(plan_.mma_items), stream);
    if (status) status = blocks_.allocate(bytes_of(plan_.blocks), stream);
    if (status) status = out_.allocate(rows * dim_v * sizeof(float), stream);
    if (status) status = lse_.allocate(rows * sizeof(float), stream);
    return status ? upload() : status;
  }

  Result<bool> replan(const StepInput& step) override {
    if (!fixed_) return false;
    const DeviceGuard guard(step_.exec.device);
    if (Status status = guard.status(); !status) return status.error();
    step_ = step;
    make_lists();
    if (Status status = upload(); !status) return status.error();
    return true;
  }

  Status run(const AttentionArgs& args) override {
    if (Status status = gpu::check_device_args(args); !status) return status;
    const DeviceGuard guard(step_.exec.device);
    if (Status status = guard.status(); !status) return status;
    gpu::AttendParams attend = gpu::attend_params(step_, args);
    attend.blocks = blocks_.as<gpu::RowBlock>();
    attend.partials = {out_.as<float>(), lse_.as<float>()};
    gpu::AttendChoice choice;
    choice.width = width_of(step_.problem);
    choice.rows = gpu::core_rows(step_);
    choice.latent = gpu::is_latent(step_.problem);
    Status status;
    if (!choice.latent) status = launch(args, attend, choice, core_items_, plan_.core_items.size());
    choice.mma = true;
    if (status) status = launch(args, attend, choice, mma_items_, plan_.mma_items.size());
    if (!status) return status;
    gpu::MergeParams merge = gpu::merge_params(step_, args, plan_.rows_per_block);
    merge.blocks = attend.blocks;
    merge.partials = attend.partials;
    return as_status(gpu::launch_merge(merge, static_cast<int>(plan_.blocks.size()), stream_of(step_.exec)),
                     "launching the merge");
  }

  [[nodiscard]] std::int64_t num_work_items() const noexcept override {
    const std::size_t items = plan_.core_items.size() + plan_.mma_items.size();
    return static_cast<std::int64_t>(items) * step_.problem.num_kv_heads;
  }
  [[nodiscard]] std::int64_t num_partials() const noexcept override { return num_work_items(); }

 private:
  template <class T>
  static std::size_t bytes_of(const std::vector<T>& list) {
    return list.size() * sizeof(T);
  }

  void make_lists() {
    gpu::plan_attend(step_, target_blocks_, plan_);
    if (fixed_) gpu::pad_plan(plan_, limits_);
  }

  [[nodiscard]] Status upload() {
    const cudaStream_t stream = stream_of(step_.exec);
    Status status = core_items_.fill(plan_.core_items.data(), bytes_of(plan_.core_items), stream);
    if (status) status = mma_items_.fill(plan_.mma_items.data(), bytes_of(plan_.mma_items), stream);
    return status ? blocks_.fill(plan_.blocks.data(), bytes_of(plan_.blocks), stream) : status;
  }

  [[nodiscard]] Status launch(const AttentionArgs& args, gpu::AttendParams& params, const gpu::AttendChoice& choice,
                              const StreamMemory& items, std::size_t count) const {
    if (count == 0) return {};
    params.items = items.as<gpu::WorkItem>();
    return as_status(launch_attend_of(args.kv.dtype, params, choice, static_cast<int>(count), stream_of(step_.exec)),
                     "launching attention");
  }

  bool fixed_;
  std::int64_t target_blocks_;
  gpu::PlanLimits limits_;
  gpu::AttendPlan plan_;
  StreamMemory core_items_;
  StreamMemory mma_items_;
  StreamMemory blocks_;
  StreamMemory out_;
  StreamMemory lse_;
};

}  // namespace

Status cuda_available() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return as_status(error, "looking for a device");
  if (count == 0) return {ErrorCode::environment, "CUDA: the driver reports no device"};
  return {};
}

PlanResult make_cuda_plan(StepInput step, const PlanCapacity& capacity) {
  if (Status status = gpu::check_device_problem(step.problem); !status) return status.error();
  if (Status status = cuda_available(); !status) return status.error();
  auto plan = std::make_unique<CudaPlan>(std::move(step), capacity);
  if (Status status = plan->prepare(); !status) return status.error();
  return std::unique_ptr<AttentionPlan::Impl>(std::move(plan));
}

Status cuda_merge(const float* a, const float* lse_a, const float* b, const float* lse_b, float* out, float* lse,
                  std::int64_t rows, std::int64_t dim, const ExecOptions& exec) {
  if (Status status = cuda_available(); !status) return status;
  const DeviceGuard guard(exec.device);
  if (Status status = guard.status(); !status) return status;
  const gpu::MergePairParams params{a, lse_a, b, lse_b, out, lse, static_cast<std::int32_t>(dim)};
  return as_status(gpu::launch_merge_pair(params, rows, stream_of(exec)), "launching the merge");
}

}  // namespace kvpool::kernels
