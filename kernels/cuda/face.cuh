// The one header with two faces: under nvcc thin wrappers around the device's own words, otherwise the CPU executor of
// kernels/simt. Kernels are written against this header only and compile unchanged for both.
#pragma once

#include <cstdint>

#include "kernels/number_formats.hpp"

#if defined(__CUDACC__)

#include <cuda_bf16.h>
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

/// Small neighbouring loads as 32-bit words.
template <int Bytes>
KVPOOL_DEVICE void load_words(const void* from, std::uint32_t* words) {
  if constexpr (Bytes == 16) {
    const uint4 raw = *static_cast<const uint4*>(from);
    words[0] = raw.x;
    words[1] = raw.y;
    words[2] = raw.z;
    words[3] = raw.w;
  } else if constexpr (Bytes == 8) {
    const uint2 raw = *static_cast<const uint2*>(from);
    words[0] = raw.x;
    words[1] = raw.y;
  } else if constexpr (Bytes == 4) {
    words[0] = *static_cast<const std::uint32_t*>(from);
  } else {
    words[0] = *static_cast<const std::uint16_t*>(from);
  }
}

/// Count neighbouring numbers as pairs of the 16-bit type their products are taken in, first number low.
template <int Count>
KVPOOL_DEVICE void load_packed(const Bf16* from, std::uint32_t* pairs) {
  load_words<2 * Count>(from, pairs);
}
template <int Count>
KVPOOL_DEVICE void load_packed(const Fp16* from, std::uint32_t* pairs) {
  load_words<2 * Count>(from, pairs);
}
template <int Count>
KVPOOL_DEVICE void load_packed_fp8(const void* from, std::uint32_t* pairs, __nv_fp8_interpretation_t kind) {
  std::uint32_t words[Count < 4 ? 1 : Count / 4];
  load_words<Count>(from, words);
  KVPOOL_UNROLL
  for (int i = 0; i < Count / 2; ++i) {
    const auto two = static_cast<__nv_fp8x2_storage_t>(words[i / 2] >> (16 * (i % 2)));
    const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(two, kind);
    pairs[i] = static_cast<std::uint32_t>(pair.x) | static_cast<std::uint32_t>(pair.y) << 16;
  }
}
template <int Count>
KVPOOL_DEVICE void load_packed(const E4m3* from, std::uint32_t* pairs) {
  load_packed_fp8<Count>(from, pairs, __NV_E4M3);
}
template <int Count>
KVPOOL_DEVICE void load_packed(const E5m2* from, std::uint32_t* pairs) {
  load_packed_fp8<Count>(from, pairs, __NV_E5M2);
}

/// The low (0) or high (1) halves of two words, that of `low` low.
KVPOOL_DEVICE std::uint32_t pair_of_halves(std::uint32_t low, std::uint32_t high, int half) {
  return __byte_perm(low, high, half == 0 ? 0x5410 : 0x7632);
}

/// Nearest number of the 16-bit type.
template <class Compute>
KVPOOL_DEVICE Compute product_form(float value) {
  if constexpr (kIsBf16<Compute>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
  } else {
    return {__half_as_ushort(__float2half_rn(value))};
  }
}
template <class Compute>
KVPOOL_DEVICE std::uint32_t pack_pair(float low, float high) {
  return static_cast<std::uint32_t>(product_form<Compute>(low).bits) |
         static_cast<std::uint32_t>(product_form<Compute>(high).bits) << 16;
}

/// c += a b on the fragments of a warp: a 16 x 16, b 16 x 8, 16-bit numbers in pairs, sums in fp32.
template <class Compute>
KVPOOL_DEVICE void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if constexpr (kIsBf16<Compute>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

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

namespace kvpool::kernels::gpu {

/// The 16-bit type in which tensor cores multiply a cache type; fp8 numbers are exact in fp16.
template <class Cache>
struct ProductType {
  using type = Fp16;
};
template <>
struct ProductType<Bf16> {
  using type = Bf16;
};

}  // namespace kvpool::kernels::gpu

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
