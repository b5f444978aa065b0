// Tiles of 128 keys: which keys rows need, where their rows lie, and what is worth fetching ahead.
//
// Included by the tier files only; see row_kernel.hpp for what that forbids.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/row_task.hpp"

#if defined(__clang__)
#define KVPOOL_UNROLL _Pragma("unroll")
#else
#define KVPOOL_UNROLL _Pragma("GCC unroll 16")
#endif
#define KVPOOL_INLINE inline __attribute__((always_inline))

namespace kvpool::kernels {
namespace {

/// Asks for the line of p in the second-level cache. Written as an instruction, since a compiler may drop a loop that
/// does nothing but call its own prefetch function.
KVPOOL_INLINE void fetch_line(const std::byte* p) {
#if defined(__x86_64__)
  asm volatile("prefetcht1 %0" : : "m"(*p));
#elif defined(__aarch64__)
  asm volatile("prfm pldl2keep, %0" : : "Q"(*p));
#else
  __builtin_prefetch(p, 0, 2);
#endif
}

}  // namespace

/// Rows of one tile: kKeyTile places for K, as many for V; those of the first head of the task.
struct TileRows {
  const std::byte** k;
  const std::byte** v;
};

struct TileSpan {
  std::int64_t first;  ///< first key of the tile
  std::int64_t lo;     ///< keys any row needs, relative to first: [lo, hi)
  std::int64_t hi;
};

/// Rows of one head to work on, and rows to fetch meanwhile: `ahead_bytes` of ahead[i] beside row i.
struct RowWalk {
  const std::byte* const* rows;  ///< [kKeyTile], of the first head of the task
  std::int64_t shift;            ///< bytes from there to the rows of this head
  const std::byte* const* ahead;
  std::int64_t ahead_bytes;  ///< 0: nothing
};

/// Rows of the next tile whose pages the processor should look up early: one line of every `stride`th row.
struct PageTouch {
  const std::byte* const* k;
  const std::byte* const* v;
  std::int64_t stride;  ///< a power of two
};

template <class V>
struct RowTiles {
  static constexpr std::int64_t kKeys = V::kKeyBlock;
  static constexpr std::int64_t kProcessorPage = 4096;
  static KVPOOL_INLINE std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  static KVPOOL_INLINE std::int64_t most(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

  /// Keys of row r in the tile, relative to its first key.
  static KVPOOL_INLINE std::int64_t row_lo(const RowTask& t, std::int64_t r, const TileSpan& s) {
    return most(t.keys[r].begin - s.first, 0);
  }
  static KVPOOL_INLINE std::int64_t row_hi(const RowTask& t, std::int64_t r, const TileSpan& s, std::int64_t end) {
    return least(t.keys[r].end - s.first, end);
  }

  static TileSpan span_of(const RowTask& t, std::int64_t first) {
    const std::int64_t tile_end = least(first + kKeyTile, t.end);
    std::int64_t lo = tile_end;
    std::int64_t hi = first;
    for (std::int64_t r = 0; r < t.rows; ++r) {
      const std::int64_t a = most(t.keys[r].begin, first);
      const std::int64_t b = least(t.keys[r].end, tile_end);
      if (a >= b) continue;
      lo = least(lo, a);
      hi = most(hi, b);
    }
    if (lo >= hi) return {first, 0, 0};
    return {first, lo - first, hi - first};
  }

  /// Rows from one page of the processor to the next, rounded down to a power of two and at least a block of keys.
  static std::int64_t touch_stride(const RowTask& t) {
    std::int64_t stride = kKeys;
    while (stride * 2 <= t.page_size && stride * 2 * t.k.token_bytes <= kProcessorPage) stride *= 2;
    return stride;
  }

  /// Row pointers of the tile; keys that no row needs point to one that some row needs.
  static void locate(const RowTask& t, const TileSpan& s, const TileRows& rows) {
    if (s.lo >= s.hi) return;
    const std::int64_t key = s.first + s.lo;
    std::int64_t page = key / t.page_size;
    std::int64_t offset = key - page * t.page_size;
    std::int64_t i = s.lo;
    while (i < s.hi) {
      const auto id = static_cast<std::int64_t>(t.pages[page]);
      const std::byte* k = t.k.base + id * t.k.page_bytes + offset * t.k.token_bytes;
      const std::byte* v = t.v.base + id * t.v.page_bytes + offset * t.v.token_bytes;
      const std::int64_t stop = least(s.hi, i + t.page_size - offset);
      for (; i < stop; ++i) {
        rows.k[i] = k;
        rows.v[i] = v;
        k += t.k.token_bytes;
        v += t.v.token_bytes;
      }
      ++page;
      offset = 0;
    }
    for (std::int64_t j = s.lo & ~std::int64_t{kKeys - 1}; j < s.lo; ++j) rows.k[j] = rows.k[s.lo];
    const std::int64_t stop = (s.hi + kKeys - 1) & ~std::int64_t{kKeys - 1};
    for (std::int64_t j = s.hi; j < stop; ++j) rows.k[j] = rows.k[s.hi - 1];
  }
};

/// The rows of two tiles, one worked on and one to come, as one ring: K and V of the first, K and V of the second.
template <class V>
class RowRing {
 public:
  explicit RowRing(const RowTask& t) {
    for (const std::byte*& row : rows_) row = t.k.base;  // so that every place can be fetched, used or not
  }

  TileRows tile(int which) { return {rows_ + which * 2 * kKeyTile, rows_ + which * 2 * kKeyTile + kKeyTile}; }

  /// `s` as far as the task needs it; behind its last tile, what will be asked for next.
  void locate(const RowTask& t, const TileSpan& s, int which) {
    RowTiles<V>::locate(t, s, tile(which));
    if (which == 0) __builtin_memcpy(rows_ + 4 * kKeyTile, rows_, kDistance * sizeof(rows_[0]));
  }

  /// One head: the rows that come kDistance keys later in the ring.
  const std::byte* const* after_k(int which) const { return rows_ + which * 2 * kKeyTile + kDistance; }
  const std::byte* const* after_v(int which) const { return rows_ + which * 2 * kKeyTile + kKeyTile + kDistance; }

 private:
  /// Far enough to hide the latency of memory; the second-level cache holds it.
  static constexpr std::int64_t kDistance = 128;
  static_assert(kDistance % V::kKeyBlock == 0 && kDistance <= kKeyTile);

  const std::byte* rows_[4 * kKeyTile + kDistance];
};

/// Several heads: the rows of all heads of the next tile in the order in which they lie in memory, a share of them
/// beside each head of this tile.
template <class V>
class HeadSpread {
 public:
  HeadSpread(std::int64_t heads, std::int64_t head_bytes) : heads_(heads), head_bytes_(head_bytes) {}

  /// The rows to fetch beside the next head. `rows`: those of the first head.
  void take(const std::byte* const* rows, const std::byte** out) {
    for (std::int64_t i = 0; i < kKeyTile; ++i) {
      out[i] = rows[token_] + head_ * head_bytes_;
      if (++head_ == heads_) {
        head_ = 0;
        ++token_;
      }
    }
  }

 private:
  std::int64_t heads_;
  std::int64_t head_bytes_;
  std::int64_t token_ = 0;
  std::int64_t head_ = 0;
};

}  // namespace kvpool::kernels
