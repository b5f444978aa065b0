// The one header with two faces: under nvcc thin wrappers around the device's own words, otherwise the CPU executor of
// kernels/simt. Kernels are written against this header only and compile unchanged for both.
#pragma once

#include <cstdint>

#include "kernels/number_formats.hpp"

#if defined(__CUDACC__)

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#define KVPOOL_DEVICE __device__ __forceinline__
#define KVPOOL_UNROLL _Pragma("unroll")
#define KVPOOL_UNROLL_2 _Pragma("unroll 2")

namespace kvpool::kernels::gpu {

KVPOOL_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
KVPOOL_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
KVPOOL_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
KVPOOL_DEVICE int block_threads() { return static_cast<int>(blockDim.x); }
KVPOOL_DEVICE void block_barrier() { __syncthreads(); }

/// Value of the lane whose number differs in the bits of `mask`; all lanes of the warp call it together.
KVPOOL_DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xFFFFFFFFU, value, mask); }

/// Copies Bytes (8 or 16) to shared memory without waiting; zeros instead when not `valid`, and `from` is not read
/// then.
template <int Bytes>
KVPOOL_DEVICE void copy_async(void* to_shared, const void* from, bool valid) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(to_shared));
  const int size = valid ? Bytes : 0;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
  }
}
KVPOOL_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Returns when at most Pending of this thread's groups are under way.
template <int Pending>
KVPOOL_DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

KVPOOL_DEVICE float fast_exp2(float x) { return exp2f(x); }
/// 1 / x within 1 ulp for the sums of weights that occur here. The exact division calls a subroutine, around which the
/// compiler spills.
KVPOOL_DEVICE float fast_reciprocal(float x) { return __fdividef(1.0F, x); }

/// Eight neighbouring numbers in fp32; `from` is aligned to their size.
KVPOOL_DEVICE void widen8(const Bf16* from, float* to) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
  KVPOOL_UNROLL
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(words[i] << 16);
    to[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
  }
}
KVPOOL_DEVICE void widen8(const Fp16* from, float* to) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
  KVPOOL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
    to[2 * i] = pair.x;
    to[2 * i + 1] = pair.y;
  }
}
template <class Fp8>
KVPOOL_DEVICE void widen8_fp8(const Fp8* from, float* to, __nv_fp8_interpretation_t kind) {
  const uint2 raw = *reinterpret_cast<const uint2*>(from);
  KVPOOL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const unsigned word = i < 2 ? raw.x : raw.y;
    const auto two = static_cast<__nv_fp8x2_storage_t>(word >> (16 * (i % 2)));
    const float2 pair = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, kind)));
    to[2 * i] = pair.x;
    to[2 * i + 1] = pair.y;
  }
}
KVPOOL_DEVICE void widen8(const E4m3* from, float* to) { widen8_fp8(from, to, __NV_E4M3); }
KVPOOL_DEVICE void widen8(const E5m2* from, float* to) { widen8_fp8(from, to, __NV_E5M2); }

/// Hands out arrays from the dynamic shared memory of the block, in the same order in every thread.
class SharedCarver {
 public:
  KVPOOL_DEVICE SharedCarver() {
    extern __shared__ __align__(16) unsigned char kvpool_shared[];
    next_ = kvpool_shared;
  }
  template <class T>
  KVPOOL_DEVICE T* carve(int count) {
    T* array = reinterpret_cast<T*>(next_);
    next_ += (count * sizeof(T) + 15) / 16 * 16;
    return array;
  }

 private:
  unsigned char* next_;
};

}  // namespace kvpool::kernels::gpu

#else

#include "kernels/simt/face.hpp"

#endif

// Mistakes that tests plant on purpose, to see whether the executor finds them. Only a program compiled with
// KVPOOL_PLANT_BUGS can choose one, by number; everywhere else this is a constant 0 and the branches are gone.
#if !defined(KVPOOL_PLANT_BUGS)
#define KVPOOL_PLANTED_BUG 0
#else
namespace kvpool::kernels::gpu {
inline int planted_bug = 0;
}
#define KVPOOL_PLANTED_BUG ::kvpool::kernels::gpu::planted_bug
#endif
