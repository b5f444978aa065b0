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
