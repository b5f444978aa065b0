#include <cuda_runtime.h>

#include "kernels/cuda/launchers.hpp"
#include "kernels/cuda/merge.cuh"

namespace kvpool::kernels::gpu {
namespace {

__global__ void __launch_bounds__(kThreads, 8) merge_kernel(const __grid_constant__ MergeParams params) {
  merge_block(params);
}

__global__ void __launch_bounds__(kThreads) merge_pair_kernel(const __grid_constant__ MergePairParams params) {
  merge_pair_block(params);
}

}  // namespace

cudaError_t launch_merge(const MergeParams& params, int blocks, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(blocks * params.rows_per_block), static_cast<unsigned>(params.num_kv_heads));
  merge_kernel<<<grid, kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t launch_merge_pair(const MergePairParams& params, std::int64_t rows, cudaStream_t stream) {
  merge_pair_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace kvpool::kernels::gpu
