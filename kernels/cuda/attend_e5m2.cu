#include "kernels/cuda/attend_kernels.cuh"

namespace kvpool::kernels::gpu {

cudaError_t launch_attend_e5m2(const AttendParams& params, int lanes, int rows, int items, cudaStream_t stream) {
  return launch_attend<E5m2>(params, lanes, rows, items, stream);
}

}  // namespace kvpool::kernels::gpu
