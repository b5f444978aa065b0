#include "kernels/cuda/attend_kernels.cuh"

namespace kvpool::kernels::gpu {

cudaError_t launch_attend_e4m3(const AttendParams& params, const AttendChoice& choice, int items, cudaStream_t stream) {
  return launch_attend<E4m3>(params, choice, items, stream);
}

}  // namespace kvpool::kernels::gpu
