// The fp8 rows of latent attention: 656 bytes a token instead of 1,152.
//
//     bytes   0..511   512 numbers e4m3, the compressed keys and values
//     bytes 512..527   4 scales fp32, one for every 128 of them: real = stored * scale
//     bytes 528..655   64 numbers bf16, the part of the key that carries the position
//
// Attention on the host reads them in place, through latent_view(). The writers here work in host memory, on one
// thread, in the little-endian byte order of the processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvpool/kernels/paged_attention.hpp"

namespace kvpool::kernels {

inline constexpr std::int64_t kLatentDim = 512;
inline constexpr std::int64_t kLatentRopeDim = 64;
inline constexpr std::int64_t kLatentScaleGroup = 128;
inline constexpr std::int64_t kLatentRowBytes = 656;

/// Pages of such rows: the row of (page, token) starts at data + page * page_stride + token * token_stride, in bytes.
struct LatentPages {
  std::byte* data = nullptr;
  std::int64_t num_pages = 0;
  std::int64_t page_size = 64;  ///< tokens
  std::int64_t page_stride = 0;
  std::int64_t token_stride = kLatentRowBytes;
};

/// Writes token t to slots[t] (slot = page * page_size + offset; -1 is skipped and its rows are not read; a slot
/// outside the pool is never written). `latent` is [T][512] and `rope` [T][64], both fp32, fp16 or bf16; head strides
/// are not used. The scale of 128 numbers is the largest finite magnitude among them / 448, or 1 when that is 0;
/// rounding is to nearest even, infinities saturate, NaN stays. No two tokens may name one slot. Errors, before any
/// byte changes: invalid_argument (memory, sizes, strides that overlap), unsupported (row types). Returns the number of
/// tokens ignored because their slot lies outside. O(T).
[[nodiscard]] Result<std::int64_t> append_latent(const LatentPages& pages, const QueryRows& latent,
                                                 const QueryRows& rope, std::span<const std::int64_t> slots);

/// The pages as a cache that attention reads (head_dim 576, head_dim_v 512, one KV head): its type is uint8, its
/// strides are bytes. For the reference and cpu backends; cuda refuses it by name. Appending through the view is
/// refused too, and so are copies and gather: as bytes, pages are copied through a view of type fp8_e4m3 with one head
/// of 656 elements for K and V alike. O(1), pure.
[[nodiscard]] PagedKvView latent_view(const LatentPages& pages) noexcept;

/// Tokens [0, len) of one sequence as dense rows [len][576] of `type` (float32 or bfloat16), the form that attention
/// with head_dim 576 and head_dim_v 512 takes. `table` holds ceil(len / page_size) page numbers; one outside is
/// refused. Errors: invalid_argument, unsupported (type). O(len).
[[nodiscard]] Status expand_latent(const LatentPages& pages, std::span<const std::int32_t> table, std::int64_t len,
                                   void* out, DType type);

}  // namespace kvpool::kernels
