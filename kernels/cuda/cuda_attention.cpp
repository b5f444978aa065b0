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

/// Thread blocks the device holds at once: wide rows fill the shared memory of a multiprocessor with one block.
std::int64_t resident_blocks(int device, int lanes) {
  int processors = 0;
  if (cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) processors = 1;
  return static_cast<std::int64_t>(processors) * (lanes == 32 ? 1 : 2);
}

cudaError_t launch_attend_of(DType cache, const gpu::AttendParams& params, int lanes, int rows, int items,
                             cudaStream_t stream) {
  switch (cache) {
    case DType::float16: return gpu::launch_attend_fp16(params, lanes, rows, items, stream);
    case DType::bfloat16: return gpu::launch_attend_bf16(params, lanes, rows, items, stream);
    case DType::fp8_e4m3: return gpu::launch_attend_e4m3(params, lanes, rows, items, stream);
    case DType::fp8_e5m2: return gpu::launch_attend_e5m2(params, lanes, rows, items, stream);
    case DType::float32:
    case DType::uint8: break;
  }
  return cudaErrorInvalidValue;
}

class CudaPlan final : public AttentionPlan::Impl {
 public:
  explicit CudaPlan(StepInput step) : Impl(std::move(step)) {}

  ~CudaPlan() override {
    const DeviceGuard guard(step_.exec.device);  // memory goes back to the stream of that device
    items_ = {};
    blocks_ = {};
    out_ = {};
    lse_ = {};
  }

  [[nodiscard]] Status prepare() {
    const DeviceGuard guard(step_.exec.device);
    if (Status status = guard.status(); !status) return status;
    const cudaStream_t stream = stream_of(step_.exec);
    lanes_ = gpu::lanes_for(step_.problem);
    plan_ = gpu::plan_attend(step_, resident_blocks(step_.exec.device, lanes_));
    const auto partials = static_cast<std::size_t>(plan_.num_slots * step_.problem.num_kv_heads * plan_.rows_per_block);
    const auto dim_v = static_cast<std::size_t>(step_.problem.head_dim_v);
    Status status = items_.upload(plan_.items.data(), plan_.items.size() * sizeof(gpu::WorkItem), stream);
    if (status) status = blocks_.upload(plan_.blocks.data(), plan_.blocks.size() * sizeof(gpu::RowBlock), stream);
    if (status) status = out_.allocate(partials * dim_v * sizeof(float), stream);
    if (status) status = lse_.allocate(partials * sizeof(float), stream);
    return status;
  }

  Status run(const AttentionArgs& args) override {
    if (Status status = gpu::check_device_args(args); !status) return status;
    const DeviceGuard guard(step_.exec.device);
    if (Status status = guard.status(); !status) return status;
    const cudaStream_t stream = stream_of(step_.exec);
    const gpu::Partials partials{out_.as<float>(), lse_.as<float>()};
    if (!plan_.items.empty()) {
      gpu::AttendParams attend = gpu::attend_params(step_, args);
      attend.items = items_.as<gpu::WorkItem>();
      attend.blocks = blocks_.as<gpu::RowBlock>();
      attend.partials = partials;
      const cudaError_t error = launch_attend_of(args.kv.dtype, attend, lanes_, plan_.rows_per_block,
                                                 static_cast<int>(plan_.items.size()), stream);
      if (Status status = as_status(error, "launching attention"); !status) return status;
    }
    gpu::MergeParams merge = gpu::merge_params(step_, args, plan_.rows_per_block);
    merge.blocks = blocks_.as<gpu::RowBlock>();
    merge.partials = partials;
    return as_status(gpu::launch_merge(merge, static_cast<int>(plan_.blocks.size()), stream), "launching the merge");
  }

  [[nodiscard]] std::int64_t num_work_items() const noexcept override {
    return static_cast<std::int64_t>(plan_.items.size()) * step_.problem.num_kv_heads;
  }
  [[nodiscard]] std::int64_t num_partials() const noexcept override {
    return plan_.num_slots * step_.problem.num_kv_heads;
  }

 private:
  int lanes_ = 0;
  gpu::AttendPlan plan_;
  StreamMemory items_;
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

PlanResult make_cuda_plan(StepInput step) {
  if (Status status = gpu::check_device_problem(step.problem); !status) return status.error();
  if (Status status = cuda_available(); !status) return status.error();
  auto plan = std::make_unique<CudaPlan>(std::move(step));
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
