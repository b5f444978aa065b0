// Where keys and values lie: pages of tokens, described by strides, so that a layout is data and not code.
//
// A pool holds `num_pages` pages of `page_size` tokens; page p is block id p of the block pool. The row of
// (page, token in page, KV head) starts at
//     data + page * page_stride + token * token_stride + head * head_stride      (elements, 64 bits)
// and is contiguous. K and V have strides of their own and may share one allocation. For multi-head latent
// attention both point to the same rows: head_dim 576, head_dim_v 512, one KV head.
//
// A view owns nothing. Pointers are host memory for the reference and cpu backends and memory of one device for cuda.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvpool/config/kv_cache_spec.hpp"
#include "kvpool/foundation/error.hpp"

namespace kvpool::kernels {

/// The two usual orders inside a page.
enum class CacheLayout {
  nhd,  ///< [page][token][head][dim]
  hnd,  ///< [page][head][token][dim]: the heads of a rank are contiguous
};

/// Strides of the rows of K or of V, in elements of the cache type.
struct PagedRows {
  void* data = nullptr;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

/// Offset of a row from `rows.data` in elements; exact as long as the product fits 63 bits. O(1), pure.
[[nodiscard]] constexpr std::int64_t row_offset(const PagedRows& rows, std::int64_t page, std::int64_t token,
                                                std::int64_t head) noexcept {
  return page * rows.page_stride + token * rows.token_stride + head * rows.head_stride;
}

/// The KV cache of one layer on one rank.
struct PagedKvView {
  DType dtype = DType::bfloat16;  ///< float32, float16, bfloat16, fp8_e4m3 or fp8_e5m2; uint8: see latent_rows.hpp
  std::int64_t num_pages = 0;
  std::int64_t page_size = 16;    ///< tokens in a page
  std::int64_t num_kv_heads = 1;  ///< of this rank
  std::int64_t head_dim = 0;      ///< elements of a K row
  std::int64_t head_dim_v = 0;    ///< elements of a V row
  PagedRows k;
  PagedRows v;
};

/// Shape of a pool; what contiguous_kv_view() needs besides memory.
struct KvShape {
  DType dtype = DType::bfloat16;
  std::int64_t num_pages = 0;
  std::int64_t page_size = 16;
  std::int64_t num_kv_heads = 1;
  std::int64_t head_dim = 0;
  std::int64_t head_dim_v = 0;  ///< 0: as head_dim
};

/// View of two dense arrays in `layout` order; `k` holds num_pages * page_size * num_kv_heads * head_dim elements,
/// `v` the same with head_dim_v. O(1).
[[nodiscard]] PagedKvView contiguous_kv_view(const KvShape& shape, CacheLayout layout, void* k, void* v) noexcept;

/// The KV heads [first, first + count) of `view`: same pages, fewer heads. Precondition: inside the view's heads. O(1).
[[nodiscard]] PagedKvView head_slice(const PagedKvView& view, std::int64_t first, std::int64_t count) noexcept;

/// Refuses, naming the field and its value: a missing pointer, sizes below 1, a cache type without kernels (uint8
/// that is not the view of fp8 rows of latent attention). O(1).
[[nodiscard]] Status validate(const PagedKvView& view);

/// Factors that turn the stored numbers of an fp8 cache into real ones: real = stored * scale. For other cache types
/// they are checked and not used. Host memory, read during the call only. Empty: 1. One entry: one scale for the
/// tensor. More: [layer][KV head], of which row `layer` is used.
struct KvScales {
  std::span<const float> k;
  std::span<const float> v;
  std::int64_t layer = 0;
};

/// Every scale must be finite and above 0, and the row of `layer` must exist; otherwise invalid_argument. O(entries).
[[nodiscard]] Status validate(const KvScales& scales, std::int64_t num_kv_heads);

/// Pages of each sequence, one padded row per sequence: page of token j of sequence b is
/// entries[b * row_stride + j / page_size]. Entries at and past ceil(len / page_size) are never read.
struct PageTable {
  const std::int32_t* entries = nullptr;
  std::int64_t row_stride = 0;  ///< entries
  std::int64_t columns = 0;     ///< usable entries in a row
};

/// The compressed form: pages of sequence b are indices[indptr[b] .. indptr[b + 1]). Host memory.
struct CsrPages {
  std::span<const std::int32_t> indptr;         ///< [B + 1], starts at 0, never falls
  std::span<const std::int32_t> indices;        ///< [indptr[B]]
  std::span<const std::int32_t> last_page_len;  ///< [B], tokens in the last page: 1..page_size, 0 for an empty sequence
};

/// A CSR batch in the padded form, which the kernels read. Owns its arrays.
struct PaddedPages {
  std::vector<std::int32_t> entries;
  std::vector<std::int32_t> seq_lens;
  std::int64_t columns = 0;

  [[nodiscard]] PageTable table() const noexcept { return {entries.data(), columns, columns}; }
};

/// Checks and pads. Refuses with invalid_argument, before anything is built: an indptr that falls or does not fit, a
/// page outside [0, num_pages), a last_page_len outside 1..page_size (0 only for no pages). O(B * longest row).
[[nodiscard]] Result<PaddedPages> pad_csr(const CsrPages& pages, std::int64_t page_size, std::int64_t num_pages);

}  // namespace kvpool::kernels
