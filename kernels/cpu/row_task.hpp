// The unit of work of the CPU backend and the functions an instruction-set tier offers for it.
//
// A task is "some query rows against the keys [begin, end) of one sequence and one KV head". Rows are independent of
// each other in every bit: which rows share a task is a matter of speed only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvpool/config/kv_cache_spec.hpp"
#include "kvpool/kernels/backend.hpp"

namespace kvpool::kernels {

/// Keys per softmax step. Scores of a tile stay in the first-level cache.
inline constexpr std::int64_t kKeyTile = 128;
/// Rows are padded to a multiple of this; padding rows are computed and ignored.
inline constexpr std::int64_t kRowBlock = 4;
/// Most rows of a task.
inline constexpr std::int64_t kMaxTaskRows = 64;
/// Most KV heads of a task.
inline constexpr std::int64_t kMaxTaskHeads = 16;
/// Floats of an expanded fp8 row of latent attention.
inline constexpr std::int64_t kLatentTileRow = 576;
/// Prepared rows and accumulators are padded to a multiple of this many elements.
inline constexpr std::int64_t kRowPad = 64;

/// K rows or V rows of the KV heads of a task, in bytes; `base` belongs to the first head.
struct HeadRows {
  const std::byte* base;
  std::int64_t page_bytes;
  std::int64_t token_bytes;
  std::int64_t head_bytes;
};

/// Keys a row sees: [begin, end). ALiBi adds slope * (key - origin), where the origin is the key that the slope
/// favours: the keys that matter get small numbers, whose rounding does not show in the weights. `shift` is what the
/// logits of the row lack then.
struct RowKeys {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t origin;
  float slope;
  double shift;
};

struct RowTask {
  HeadRows k;
  HeadRows v;
  const std::int32_t* pages;
  std::int64_t page_size;
  std::int64_t dim;
  std::int64_t dim_v;

  std::int64_t heads;     ///< KV heads that walk the pages together; each has rows, keys and states of its own
  std::int64_t rows;      ///< of one head
  const RowKeys* keys;    ///< [heads][rows]; heads differ in the slope only
  const void* q;          ///< [heads][padded rows][q_stride] prepared: fp32, or bf16 when the tier says so
  std::int64_t q_stride;  ///< elements
  const float* scale;     ///< [heads] of the dot product, the K scale included
  float soft_cap;         ///< 0: none
  bool alibi;
  bool bf16_queries;

  std::int64_t begin;  ///< keys of this split
  std::int64_t end;
  std::int64_t ahead_end;  ///< keys [end, ahead_end) will be asked for next: worth fetching, never read

  float* expanded;  ///< [kKeyTile][kLatentTileRow] for fp8 rows of latent attention, scratch; else nullptr
  float* scores;    ///< [heads][padded rows][kKeyTile], scratch
  float* acc;       ///< [padded rows][acc_stride] of the first head, result: sum of p * v, in the tier's element order
  std::int64_t acc_stride;
  float* max;                 ///< [padded rows] of the first head, result
  float* sum;                 ///< [padded rows] of the first head, result
  std::int64_t state_stride;  ///< floats from a head's acc, max and sum to the next one's
};

/// What one tier offers; uint8 stands for the fp8 rows of latent attention. All functions are pure apart from their
/// outputs and safe to call from many threads.
struct TierKernels {
  CpuTier tier;
  /// Place of element i of a row in accumulators and prepared queries (of bf16 ones when `bf16`); `dim` entries.
  void (*element_order)(DType cache, bool bf16, std::int64_t dim, std::int32_t* order);
  /// Whether rows of `query` type stay bf16 for this cache type, instead of becoming fp32.
  bool (*takes_bf16_queries)(DType cache, DType query);
  /// Fills acc, max and sum of every row from the keys [begin, end). A row without keys there: 0, -infinity, 0.
  void (*attend)(DType cache, const RowTask& task);
  /// `count` numbers of a compute type, divided by `scale`, to fp8: the bits of stored_form().
  void (*to_fp8)(DType from, DType to, const std::byte* source, std::byte* target, std::int64_t count, float scale);
};

/// nullptr when the tier is not compiled in.
const TierKernels* generic_kernels() noexcept;
const TierKernels* avx2_kernels() noexcept;
const TierKernels* avx512_kernels() noexcept;
const TierKernels* avx512_bf16_kernels() noexcept;
const TierKernels* neon_kernels() noexcept;

/// Kernels of a tier this process can run, or nullptr.
const TierKernels* kernels_of(CpuTier tier) noexcept;

}  // namespace kvpool::kernels
