// The words of cuda/face.cuh for the CPU executor: every CUDA thread is a fibre, see executor.hpp.
#pragma once

#include <math.h>

#include <cstddef>
#include <cstdint>

#include "kernels/number_formats.hpp"
#include "kernels/simt/fibre.hpp"

#define KVPOOL_DEVICE inline
#define KVPOOL_UNROLL
#define KVPOOL_UNROLL_2

namespace kvpool::kernels::gpu {

using simt::block_barrier;
using simt::block_threads;
using simt::block_x;
using simt::block_y;
using simt::copy_async_commit;
using simt::shuffle_xor;
using simt::thread_index;

/// Reads the source now, so that a wild address is met in the line that made it, and leaves NaN in the target until the
/// wait. All stores are made here, one by one, in instrumented code: a race checker must see them as this thread's.
template <int Bytes>
void copy_async(void* to_shared, const void* from, bool valid) {
  std::uint32_t words[std::size_t{Bytes} / 4];
  const auto* source = static_cast<const std::uint32_t*>(from);
  for (int i = 0; i < Bytes / 4; ++i) words[i] = valid ? source[i] : 0U;
  volatile std::uint32_t* to = static_cast<std::uint32_t*>(to_shared);
  for (int i = 0; i < Bytes / 4; ++i) to[i] = simt::early_copies() ? words[i] : 0xFFFFFFFFU;
  simt::copy_async_issue(to, words, Bytes / 4);
}

template <int Pending>
void copy_async_wait() {
  while (const simt::PendingCopy* copy = simt::next_landed(Pending)) {
    volatile std::uint32_t* to = copy->to;
    for (int i = 0; i < copy->count; ++i) to[i] = copy->words[i];
  }
}

inline float fast_exp2(float x) { return exp2f(x); }
inline float fast_reciprocal(float x) { return 1.0F / x; }

template <class Cache>
void widen8(const Cache* from, float* to) {
  for (int i = 0; i < 8; ++i) to[i] = to_float(from[i]);
}

template <class Compute>
Compute product_form(float value) {
  return stored_form<Compute>(value, 1.0F);
}
template <class Compute>
std::uint32_t pack_pair(float low, float high) {
  return static_cast<std::uint32_t>(product_form<Compute>(low).bits) |
         static_cast<std::uint32_t>(product_form<Compute>(high).bits) << 16U;
}
inline std::uint32_t pair_of_halves(std::uint32_t low, std::uint32_t high, int half) {
  return half == 0 ? (low & 0xFFFFU) | (high << 16U) : (low >> 16U) | (high & 0xFFFF0000U);
}

/// Element by element, so that a race checker sees every load.
template <int Count, class Cache>
void load_packed(const Cache* from, std::uint32_t* pairs) {
  std::uint32_t bits[std::size_t{Count}];
  for (int i = 0; i < Count; ++i) {
    if constexpr (sizeof(Cache) == 2) {
      bits[i] = from[i].bits;
    } else {
      bits[i] = encode<Fp16>(static_cast<double>(to_float(from[i]))).bits;
    }
  }
  for (int i = 0; i < Count / 2; ++i) pairs[i] = bits[2 * i] | bits[2 * i + 1] << 16U;
}

template <class Compute>
void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  float wide_a[8];
  float wide_b[4];
  const auto widen = [](std::uint32_t pair, float* to) {
    to[0] = to_float(Compute{static_cast<std::uint16_t>(pair)});
    to[1] = to_float(Compute{static_cast<std::uint16_t>(pair >> 16U)});
  };
  for (int i = 0; i < 4; ++i) widen(a[i], wide_a + i * 2);
  for (int i = 0; i < 2; ++i) widen(b[i], wide_b + i * 2);
  simt::multiply_fragments(c, wide_a, wide_b, file, line);
}

/// Arrays from the block's shared memory. Under AddressSanitizer a poisoned zone follows each of them.
class SharedCarver {
 public:
  SharedCarver() : next_(simt::shared_memory()) {}
  template <class T>
  T* carve(int count) {
    auto* array = reinterpret_cast<T*>(next_);
    next_ += (static_cast<std::size_t>(count) * sizeof(T) + 15) / 16 * 16;
    next_ = simt::after_array(next_);
    return array;
  }

 private:
  unsigned char* next_;
};

}  // namespace kvpool::kernels::gpu
