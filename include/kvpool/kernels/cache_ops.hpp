// Moving rows and pages: append of new tokens, copies of blocks inside a pool and between pools, gather.
//
// All functions check their arguments first; a refused call leaves every byte as it was. cpu and reference block until
// done; cuda queues the work on the stream of `exec`. None of them is safe against another call that touches the same
// rows at the same time; calls on disjoint rows may run at the same time.
#pragma once

#include <cstdint>
#include <span>

#include "kvpool/kernels/backend.hpp"
#include "kvpool/kernels/paged_attention.hpp"
#include "kvpool/kernels/paged_kv_view.hpp"

namespace kvpool::kernels {

/// New keys and values: [T][Hkv][head_dim] and [T][Hkv][head_dim_v].
struct NewRows {
  QueryRows k;
  QueryRows v;
};

/// Slot of a token: page * page_size + offset. kSkipSlot: the token is padding, its rows are not even read.
inline constexpr std::int64_t kSkipSlot = -1;

/// Writes token t's rows to slots[t]. A slot outside [0, num_pages * page_size) is never written: ignored, and counted
/// in the result of the host backends (cuda reports 0). Rows of the cache's own type are copied bit by bit; others are
/// cast: to nearest even, fp8 by stored = round(real / scale) with saturation, NaN kept. No two tokens may
/// name one slot. `slots` is memory of the backend.
/// Errors: invalid_argument (scales, sizes), unsupported (no cast between the types).
/// Returns the number of tokens ignored because their slot lies outside. O(bytes).
[[nodiscard]] Result<std::int64_t> append(const PagedKvView& kv, const KvScales& scales, const NewRows& rows,
                                          const std::int64_t* slots, std::int64_t num_tokens,
                                          const ExecOptions& exec = {});

/// A whole page of one pool becomes a whole page of the same or of another pool.
struct PagePair {
  std::int64_t source = 0;
  std::int64_t target = 0;
};

/// Copies pages inside each of `layers` (fork, copy on write): one call for all pairs and all layers. A page may be
/// source of many pairs, but a target must be named once and be no source; otherwise invalid_argument. O(bytes).
[[nodiscard]] Status copy_pages(std::span<const PagedKvView> layers, std::span<const PagePair> pairs,
                                const ExecOptions& exec = {});

/// Copies pages of from[i] to pages of to[i] (swap out, swap in, defragmentation): same type, page size, heads and
/// dims; layouts may differ, pools must not overlap. With cuda one side may be host memory. O(bytes).
[[nodiscard]] Status transfer_pages(std::span<const PagedKvView> from, std::span<const PagedKvView> to,
                                    std::span<const PagePair> pairs, const ExecOptions& exec = {});

/// Tokens [0, len) of one sequence to dense rows [len][Hkv][dim] of the cache's own type, bit by bit. `pages` holds
/// ceil(len / page_size) page numbers in host memory; one outside the pool is refused. O(bytes).
[[nodiscard]] Status gather(const PagedKvView& kv, std::span<const std::int32_t> pages, std::int64_t len, void* k_out,
                            void* v_out, const ExecOptions& exec = {});

}  // namespace kvpool::kernels
