#include "kernels/cuda/attend_kernels.cuh"

namespace kvpool::kernels::gpu {

cudaError_t launch_attend_bf16(const AttendParams& params, const AttendChoice& choice, int items, cudaStream_t stream) {
  return launch_attend<Bf16>(params, choice, items, stream);
}

}  // namespace kvpool::kernels::gpu
