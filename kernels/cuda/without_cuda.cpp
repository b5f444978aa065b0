// What the cuda backend says in a build without CUDA.
#include "kernels/cache_ops_backends.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/plan_impl.hpp"

namespace kvpool::kernels {

Status cuda_available() { return {ErrorCode::unsupported, "kvpool was built without CUDA"}; }

PlanResult make_cuda_plan(StepInput /*step*/, const PlanCapacity& /*capacity*/) { return cuda_available().error(); }

Result<std::int64_t> cuda_append(const PagedKvView& /*kv*/, const KvScales& /*scales*/, const NewRows& /*rows*/,
                                 const std::int64_t* /*slots*/, std::int64_t /*num_tokens*/,
                                 const ExecOptions& /*exec*/) {
  return cuda_available().error();
}

Status cuda_copy_pages(std::span<const PagedKvView> /*from*/, std::span<const PagedKvView> /*to*/,
                       std::span<const PagePair> /*pairs*/, const ExecOptions& /*exec*/) {
  return cuda_available();
}

Status cuda_gather(const PagedKvView& /*kv*/, std::span<const std::int32_t> /*pages*/, std::int64_t /*len*/,
                   void* /*k_out*/, void* /*v_out*/, const ExecOptions& /*exec*/) {
  return cuda_available();
}

Status cuda_merge(const float* /*a*/, const float* /*lse_a*/, const float* /*b*/, const float* /*lse_b*/,
                  float* /*out*/, float* /*lse*/, std::int64_t /*rows*/, std::int64_t /*dim*/,
                  const ExecOptions& /*exec*/) {
  return cuda_available();
}

}  // namespace kvpool::kernels
