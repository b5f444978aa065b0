// Tiles of 128 keys: which keys rows need, where their rows lie, and what is worth fetching ahead.
//
// Included by the tier files only; see row_kernel.hpp for what that forbids.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/line_feed.hpp"
#include "kernels/cpu/row_task.hpp"

namespace kvpool::kernels {

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

namespace {

/// Keys by which rows are asked for in the first-level cache before they are used.
constexpr std::int64_t kNear = 8;
/// Lines fetched beside one vector of softmax weights, for which the sums leave out one in so many keys.
constexpr int kLinesInSoftmax = 2;
constexpr std::int64_t kTakesInSoftmax = 8;

/// Rows of one head to work on, and what to fetch meanwhile.
struct RowWalk {
  const std::byte* const* rows;  ///< [kKeyTile], of the first head of the task
  std::int64_t shift;            ///< bytes from there to the rows of this head
  LineFeed* feed;                ///< nullptr: nothing to fetch
  bool near;                     ///< whether rows are asked for in the first-level cache too
};

}  // namespace

template <class V>
struct RowTiles {
  static constexpr std::int64_t kKeys = V::kKeyBlock;
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

  /// The span after the tile at `first`; past the end of the split, what is worth fetching there.
  static TileSpan span_after(const RowTask& t, std::int64_t first) {
    const std::int64_t next = first + kKeyTile;
    if (next < t.end) return span_of(t, next);
    return {next, 0, most(0, least(t.ahead_end - next, kKeyTile))};
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

}  // namespace kvpool::kernels
