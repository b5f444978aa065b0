// What a running fibre may ask of the executor. Called from kernel code only, inside launch().
#pragma once

#include <cstdint>

namespace kvpool::kernels::simt {

int thread_index() noexcept;
int block_x() noexcept;
int block_y() noexcept;
int block_threads() noexcept;

/// Waits until all threads of the block stand at this very line.
void block_barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE());

/// Collective of a warp: the last lane to arrive hands every lane its partner's value. No fence.
float shuffle_xor(float value, int mask, const char* file = __builtin_FILE(), int line = __builtin_LINE());

/// Collective of a warp: c += a b in the fragments of mma.m16n8k16, a and b widened to fp32. Lane 4 g + t holds
/// a[2 r + i] = A[g + 8 (r % 2)][2 t + i + 8 (r / 2)], b[2 r + i] = B[2 t + i + 8 r][g] and
/// c[2 r + i] = C[g + 8 r][2 t + i]. No fence.
void multiply_fragments(float* c, const float* a, const float* b, const char* file, int line);

struct PendingCopy {
  volatile std::uint32_t* to;
  std::uint32_t words[4];
  int count;
};
/// Remembers the words; the wait that covers their group hands them back through next_landed().
void copy_async_issue(volatile std::uint32_t* to, const std::uint32_t* words, int count);
/// Whether copies land at once in this launch.
bool early_copies() noexcept;
void copy_async_commit();
/// The next copy to write while more than `pending` groups are open; nullptr when none is left.
const PendingCopy* next_landed(int pending);

/// Start of the block's dynamic shared memory: NaN at first, a guard page behind it.
unsigned char* shared_memory() noexcept;
/// Where the next array may start; poisons the zone before it when AddressSanitizer is in use.
unsigned char* after_array(unsigned char* end) noexcept;

}  // namespace kvpool::kernels::simt
