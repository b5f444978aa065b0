// Launches of the device kernels; each is one kernel on one stream of the current device. Blocks have been counted, and
// arguments checked, by the caller.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/params.hpp"
#include "kvpool/config/kv_cache_spec.hpp"

namespace kvpool::kernels::gpu {

/// What picks a kernel beside the cache type.
struct AttendChoice {
  bool mma = false;     ///< tensor cores
  bool latent = false;  ///< of those, with one set of rows for K and V; 16-bit caches only
  int width = 128;      ///< 64, 128 or 256: the row that both heads fit
  int rows = 4;         ///< CUDA cores: 1 or 4
};

cudaError_t launch_attend_fp16(const AttendParams& params, const AttendChoice& choice, int items, cudaStream_t stream);
cudaError_t launch_attend_bf16(const AttendParams& params, const AttendChoice& choice, int items, cudaStream_t stream);
cudaError_t launch_attend_e4m3(const AttendParams& params, const AttendChoice& choice, int items, cudaStream_t stream);
cudaError_t launch_attend_e5m2(const AttendParams& params, const AttendChoice& choice, int items, cudaStream_t stream);

cudaError_t launch_merge(const MergeParams& params, int blocks, cudaStream_t stream);
cudaError_t launch_merge_pair(const MergePairParams& params, std::int64_t rows, cudaStream_t stream);
cudaError_t launch_append(const AppendParams& params, DType cache, DType from, std::int64_t tokens,
                          cudaStream_t stream);
/// `wide`: all strides and addresses are in units of 16 bytes, else of 1.
cudaError_t launch_copy_pages(const CopyParams& params, int pairs, int jobs, bool wide, cudaStream_t stream);

}  // namespace kvpool::kernels::gpu
