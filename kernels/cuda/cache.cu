#include <cuda_runtime.h>

#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/launchers.hpp"
#include "kernels/dtype_dispatch.hpp"

namespace kvpool::kernels::gpu {
namespace {

constexpr unsigned kCacheThreads = 256;

template <class Cache, class New>
__global__ void __launch_bounds__(kCacheThreads) append_kernel(const __grid_constant__ AppendParams params) {
  append_block<Cache, New>(params);
}

template <class Unit>
__global__ void __launch_bounds__(kCacheThreads) copy_pages_kernel(const __grid_constant__ CopyParams params) {
  copy_page_block<Unit>(params);
}

}  // namespace

cudaError_t launch_append(const AppendParams& params, DType cache, DType from, std::int64_t tokens,
                          cudaStream_t stream) {
  with_cache_type(cache, [&](auto to) {
    with_compute_type(from, [&](auto source) {
      using Cache = typename decltype(to)::type;
      using New = typename decltype(source)::type;
      append_kernel<Cache, New><<<static_cast<unsigned>(tokens), kCacheThreads, 0, stream>>>(params);
    });
  });
  return cudaGetLastError();
}

cudaError_t launch_copy_pages(const CopyParams& params, int pairs, int jobs, bool wide, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(pairs), static_cast<unsigned>(jobs));
  if (wide) {
    copy_pages_kernel<Unit16><<<grid, kCacheThreads, 0, stream>>>(params);
  } else {
    copy_pages_kernel<std::uint8_t><<<grid, kCacheThreads, 0, stream>>>(params);
  }
  return cudaGetLastError();
}

}  // namespace kvpool::kernels::gpu
