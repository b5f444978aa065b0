// The __global__ functions of partial attention for one cache type, and the table the launcher picks from.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/attend_mma.cuh"
#include "kernels/cuda/launchers.hpp"

namespace kvpool::kernels::gpu {

template <class Cache, int kLanes, int kRows>
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    attend_kernel(const __grid_constant__ AttendParams params) {
  attend_block<Cache, kLanes, kRows>(params);
}

template <class Cache, int kBlocks, int kBlocksV, bool kLatent>
__global__ void __launch_bounds__(kThreads, kBlocks >= 4 ? 2 : kResidentBlocks)
    attend_mma_kernel(const __grid_constant__ AttendParams params) {
  attend_mma_block<Cache, kBlocks, kBlocksV, kLatent>(params);
}

inline cudaError_t launch_attend_as(void (*kernel)(AttendParams), int shared_bytes, const AttendParams& params,
                                    int items, cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(items), static_cast<unsigned>(params.num_kv_heads));
  kernel<<<grid, kThreads, static_cast<std::size_t>(shared_bytes), stream>>>(params);
  return cudaGetLastError();
}

template <class Cache, int kBlocks, int kBlocksV, bool kLatent>
cudaError_t launch_attend_mma(const AttendParams& params, int items, cudaStream_t stream) {
  return launch_attend_as(attend_mma_kernel<Cache, kBlocks, kBlocksV, kLatent>,
                          MmaBlock<Cache, kBlocks, kBlocksV, kLatent>::shared_bytes(), params, items, stream);
}

template <class Cache, int kWidth>
cudaError_t launch_attend_width(const AttendParams& params, const AttendChoice& choice, int items,
                                cudaStream_t stream) {
  constexpr int kLanes = kWidth / 8;
  if (choice.mma) return launch_attend_mma<Cache, kWidth / 64, kWidth / 64, false>(params, items, stream);
  if (choice.rows == 1) {
    return launch_attend_as(attend_kernel<Cache, kLanes, 1>, AttendBlock<Cache, kLanes, 1>::shared_bytes(), params,
                            items, stream);
  }
  return launch_attend_as(attend_kernel<Cache, kLanes, 4>, AttendBlock<Cache, kLanes, 4>::shared_bytes(), params, items,
                          stream);
}

template <class Cache>
cudaError_t launch_attend(const AttendParams& params, const AttendChoice& choice, int items, cudaStream_t stream) {
  if (choice.latent) {
    if constexpr (kIsFp8<Cache>) {
      return cudaErrorInvalidValue;
    } else {
      return launch_attend_mma<Cache, kLatentDim / 64, kLatentDimV / 64, true>(params, items, stream);
    }
  }
  if (choice.width == 64) return launch_attend_width<Cache, 64>(params, choice, items, stream);
  if (choice.width == 128) return launch_attend_width<Cache, 128>(params, choice, items, stream);
  return launch_attend_width<Cache, 256>(params, choice, items, stream);
}

}  // namespace kvpool::kernels::gpu
