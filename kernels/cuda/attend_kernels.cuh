// The __global__ functions of partial attention for one cache type, and the table the launcher picks from.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/launchers.hpp"

namespace kvpool::kernels::gpu {

template <class Cache, int kLanes, int kRows>
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    attend_kernel(const __grid_constant__ AttendParams params) {
  attend_block<Cache, kLanes, kRows>(params);
}

template <class Cache, int kLanes, int kRows>
cudaError_t launch_attend_as(const AttendParams& params, int items, cudaStream_t stream) {
  constexpr int kBytes = AttendBlock<Cache, kLanes, kRows>::shared_bytes();
  const auto kernel = attend_kernel<Cache, kLanes, kRows>;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(items), static_cast<unsigned>(params.num_kv_heads));
  kernel<<<grid, kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

template <class Cache, int kLanes>
cudaError_t launch_attend_lanes(const AttendParams& params, int rows, int items, cudaStream_t stream) {
  return rows == 1 ? launch_attend_as<Cache, kLanes, 1>(params, items, stream)
                   : launch_attend_as<Cache, kLanes, 4>(params, items, stream);
}

template <class Cache>
cudaError_t launch_attend(const AttendParams& params, int lanes, int rows, int items, cudaStream_t stream) {
  if (lanes == 8) return launch_attend_lanes<Cache, 8>(params, rows, items, stream);
  if (lanes == 16) return launch_attend_lanes<Cache, 16>(params, rows, items, stream);
  return launch_attend_lanes<Cache, 32>(params, rows, items, stream);
}

}  // namespace kvpool::kernels::gpu
