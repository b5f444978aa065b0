// Paged attention of a RowTask, written once over a vector class V and a row loader L.
//
// Included by the tier files only, each of which is compiled with its own instruction-set flags. Nothing here may come
// from the standard library as an inline function: the linker keeps one copy of those, and it could be one that needs
// AVX-512. For the same reason V and L live in anonymous namespaces.
//
// Per tile of 128 keys: dot products in blocks of 4 rows x some keys, softmax step, then sum of p * v. What comes later
// is fetched meanwhile, one line here and one there between the multiply-adds: the V rows of the tile during the dot
// products, the K rows of the next tile during the sums. A burst, be it of four lines, would fill the miss buffers and
// stall. Lines are asked for in the order of memory, into the second-level cache; K rows, and V rows of several heads
// side by side, once more some keys before they are used, into the first: the loads of the arithmetic would else queue
// for miss buffers behind the fetches. Heads that lie side by side in every token share a tile and a fetch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/row_softmax.hpp"
#include "kernels/cpu/row_task.hpp"
#include "kernels/cpu/row_tiles.hpp"

namespace kvpool::kernels {

template <class V, class L>
struct RowKernel {
  using F = typename V::F;
  static constexpr int kVecs = L::kVecs;
  static constexpr std::int64_t kStep = V::kLanes * kVecs;
  static constexpr int kKeys = V::kKeyBlock;
  static constexpr int kRows = static_cast<int>(kRowBlock);
  static constexpr std::int64_t kLine = 64;
  static constexpr std::int64_t kDotKeys = 16;   ///< keys of one head before the next one's turn
  static constexpr int kWide = V::kWideVectors;  ///< vectors of an accumulator chunk
  static constexpr std::size_t kKeyExtent = V::kKeyBlock;
  static constexpr std::size_t kVecExtent = L::kVecs;

  using Tiles = RowTiles<V>;
  using Softmax = RowSoftmax<V>;

  /// What `Bytes` of arithmetic allow to fetch: that many bytes, which spread_line() then asks for, or a line in every
  /// so many steps.
  template <std::int64_t Bytes>
  static KVPOOL_INLINE const std::byte* reserve_for(LineFeed& feed, std::int64_t step, const std::byte* nothing) {
    if constexpr (Bytes >= kLine) {
      return feed.reserve<static_cast<int>(Bytes / kLine)>(nothing);
    } else if (step % (kLine / Bytes) == 0) {
      feed.take<1>();
    }
    return nothing;
  }
  /// Asks for those of the reserved lines that fall to one of `Slots` places in the arithmetic.
  template <std::int64_t Bytes, int Slots>
  static KVPOOL_INLINE void spread_line(const std::byte* lines, int slot) {
    constexpr int kLines = static_cast<int>(Bytes / kLine);
    if constexpr (kLines > 0) {
      KVPOOL_UNROLL
      for (int n = 0; n < kLines; ++n) {
        if ((n + 1) * Slots / kLines - 1 == slot) fetch_line(lines + n * kLine);
      }
    }
  }

  static KVPOOL_INLINE std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  static KVPOOL_INLINE std::int64_t most(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

  // --- dot products -----------------------------------------------------------------------------------

  static constexpr std::int64_t kDotBytes = kKeys * kStep * L::kBytes;  ///< of K in one step

  /// What one step of a dot product asks for: reserved lines, and the same step of later rows.
  struct DotFetch {
    const std::byte* lines;
    const std::byte* near[kKeyExtent];
  };

  /// The fetches that fall to one place in a step: a line, and every row's share of the near ones.
  static KVPOOL_INLINE void fetch_beside(const DotFetch& f, std::int64_t at, int slot) {
    constexpr int kSlots = kVecs * kRows;
    spread_line<kDotBytes, kSlots>(f.lines, slot);
    if (kStep * L::kBytes < kLine && at * L::kBytes % kLine != 0) return;
    KVPOOL_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      if (i * kSlots / kKeys == slot) fetch_near(f.near[i] + at * L::kBytes);
    }
  }

  template <bool Tail, bool Fetch>
  static KVPOOL_INLINE void dot_step(const std::byte* const (&k)[kKeyExtent], const float* q, std::int64_t stride,
                                     std::int64_t at, std::int64_t left, const DotFetch& fetch,
                                     F (&acc)[kRowBlock][kKeyExtent]) {
    F key[kKeyExtent][kVecExtent];
    KVPOOL_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      if constexpr (Tail) {
        alignas(64) std::byte padded[64] = {};
        __builtin_memcpy(padded, k[i] + at * L::kBytes, static_cast<std::size_t>(left * L::kBytes));
        L::load(padded, key[i]);
      } else {
        L::load(k[i] + at * L::kBytes, key[i]);
      }
    }
    KVPOOL_UNROLL
    for (int j = 0; j < kVecs; ++j) {
      KVPOOL_UNROLL
      for (int r = 0; r < kRowBlock; ++r) {
        const F query = V::load(q + r * stride + at + j * V::kLanes);
        if constexpr (Fetch) fetch_beside(fetch, at, j * kRows + r);
        KVPOOL_UNROLL
        for (int i = 0; i < kKeys; ++i) acc[r][i] = V::fma(key[i][j], query, acc[r][i]);
      }
    }
  }

  /// Scores of the keys [i, i + kKeys) for kRowBlock rows.
  static KVPOOL_INLINE void dot_block(const RowTask& t, const RowWalk& keys, std::int64_t i, std::int64_t row,
                                      float* scores) {
    const float* q = static_cast<const float*>(t.q) + row * t.q_stride;
    F acc[kRowBlock][kKeyExtent];
    KVPOOL_UNROLL
    for (int r = 0; r < kRowBlock; ++r) {
      KVPOOL_UNROLL
      for (int j = 0; j < kKeys; ++j) acc[r][j] = V::zero();
    }
    const std::byte* k[kKeyExtent];
    DotFetch fetch;
    KVPOOL_UNROLL
    for (int j = 0; j < kKeys; ++j) {
      k[j] = keys.rows[i + j] + keys.shift;
      fetch.near[j] = keys.rows[i + kNear + j] + keys.shift;
    }
    LineFeed* const feed = keys.feed;
    std::int64_t at = 0;
    if (feed != nullptr) {
      for (; at + kStep <= t.dim; at += kStep) {
        fetch.lines = reserve_for<kDotBytes>(*feed, at / kStep, k[0]);
        dot_step<false, true>(k, q, t.q_stride, at, 0, fetch, acc);
      }
    } else {
      for (; at + kStep <= t.dim; at += kStep) dot_step<false, false>(k, q, t.q_stride, at, 0, fetch, acc);
    }
    if (at < t.dim) dot_step<true, false>(k, q, t.q_stride, at, t.dim - at, fetch, acc);
    V::store_sums(acc, scores, kKeyTile);
  }

  static void dot_tile(const RowTask& t, const RowWalk& keys, const TileSpan& s) {
    RowWalk quiet = keys;
    quiet.feed = nullptr;
    for (std::int64_t i = s.lo & ~std::int64_t{kKeys - 1}; i < s.hi; i += kKeys) {
      for (std::int64_t r = 0; r < t.rows; r += kRowBlock) {
        float* scores = t.scores + r * kKeyTile + i;
        const RowWalk& walk = r == 0 ? keys : quiet;
        if constexpr (L::kBf16Dot) {
          if (t.bf16_queries) {
            L::dot_block_bf16(t, walk, i, r, scores);
            continue;
          }
        }
        dot_block(t, walk, i, r, scores);
      }
    }
  }

  // --- sum of p * v -----------------------------------------------------------------------------------

  struct PvRange {
    std::int64_t lo, hi;          ///< keys any of the four rows needs
    std::int64_t all_lo, all_hi;  ///< keys all of them need
    std::int64_t row_lo[kRowBlock], row_hi[kRowBlock];
  };

  static PvRange pv_range(const RowTask& t, std::int64_t row, const TileSpan& s) {
    PvRange p{kKeyTile, 0, 0, kKeyTile, {}, {}};
    for (std::int64_t r = 0; r < kRowBlock; ++r) {
      const std::int64_t source = least(row + r, t.rows - 1);  // padding rows do as the last real one
      p.row_lo[r] = Tiles::row_lo(t, source, s);
      p.row_hi[r] = Tiles::row_hi(t, source, s, s.hi);
      if (p.row_lo[r] >= p.row_hi[r]) p.row_lo[r] = p.row_hi[r] = 0;
      if (p.row_lo[r] < p.row_hi[r]) {
        p.lo = least(p.lo, p.row_lo[r]);
        p.hi = most(p.hi, p.row_hi[r]);
      }
      p.all_lo = most(p.all_lo, p.row_lo[r]);
      p.all_hi = least(p.all_hi, p.row_hi[r]);
    }
    if (p.lo >= p.hi) p.lo = p.hi = 0;
    if (p.all_lo >= p.all_hi) p.all_lo = p.all_hi = p.hi;
    return p;
  }

  template <int Steps, bool Tail>
  static KVPOOL_INLINE void load_value(const std::byte* v, std::int64_t at, std::int64_t left, F* value) {
    if constexpr (Tail) {
      alignas(64) std::byte padded[64] = {};
      __builtin_memcpy(padded, v + at * L::kBytes, static_cast<std::size_t>(left * L::kBytes));
      L::load(padded, value);
    } else {
      KVPOOL_UNROLL
      for (int s = 0; s < Steps; ++s) L::load(v + (at + s * kStep) * L::kBytes, value + s * kVecs);
    }
  }

  /// The keys [from, to) that only some of four rows need: out = out * factor + sum of p * v, one row at a time. Kept
  /// apart from pv_chunk, whose accumulators must stay in registers.
  template <int Steps, bool Tail>
  static __attribute__((noinline)) void pv_edge(const RowTask& t, const RowWalk& v, const PvRange& range,
                                                std::int64_t row, std::int64_t at, const float* factor,
                                                std::int64_t from, std::int64_t to) {
    constexpr int kCount = Steps * kVecs;
    constexpr std::size_t kExtent = kCount;
    for (std::int64_t r = 0; r < kRowBlock; ++r) {
      const float* p = t.scores + (row + r) * kKeyTile;
      float* out = t.acc + (row + r) * t.acc_stride + at;
      F acc[kExtent];
      for (int j = 0; j < kCount; ++j) acc[j] = V::mul(V::load(out + j * V::kLanes), V::set1(factor[r]));
      const std::int64_t end = least(to, range.row_hi[r]);
      for (std::int64_t i = most(from, range.row_lo[r]); i < end; ++i) {
        F value[kExtent];
        load_value<Steps, Tail>(v.rows[i] + v.shift, at, t.dim_v - at, value);
        for (int j = 0; j < kCount; ++j) acc[j] = V::fma(V::set1(p[i]), value[j], acc[j]);
      }
      for (int j = 0; j < kCount; ++j) V::store(out + j * V::kLanes, acc[j]);
    }
  }

  /// out = out * factor + sum of p * v for the keys that all four rows need.
  template <int Steps, bool Tail>
  static KVPOOL_INLINE void pv_common(const RowTask& t, const RowWalk& v, const PvRange& range, std::int64_t row,
                                      std::int64_t at, const float* factor) {
    constexpr int kCount = Steps * kVecs;
    constexpr std::size_t kExtent = kCount;
    constexpr std::int64_t kBytes = Steps * kStep * L::kBytes;
    const float* p = t.scores + row * kKeyTile;
    float* out = t.acc + row * t.acc_stride + at;
    F acc[kRowBlock][kExtent];
    KVPOOL_UNROLL
    for (int r = 0; r < kRowBlock; ++r) {
      KVPOOL_UNROLL
      for (int j = 0; j < kCount; ++j)
        acc[r][j] = V::mul(V::load(out + r * t.acc_stride + j * V::kLanes), V::set1(factor[r]));
    }
    for (std::int64_t i = range.all_lo; i < range.all_hi; ++i) {
      F value[kExtent];
      load_value<Steps, Tail>(v.rows[i] + v.shift, at, t.dim_v - at, value);
      const std::byte* lines = v.rows[i] + v.shift;
      if (v.feed != nullptr) {
        if (i % kTakesInSoftmax != 0) lines = reserve_for<kBytes>(*v.feed, at / (Steps * kStep), lines);
      }
      const std::byte* near = v.near ? v.rows[i + kNear] + v.shift + at * L::kBytes : nullptr;
      KVPOOL_UNROLL
      for (int r = 0; r < kRowBlock; ++r) {
        const F weight = V::set1(p[r * kKeyTile + i]);
        spread_line<kBytes, kRowBlock>(lines, r);
        if (near != nullptr) {
          KVPOOL_UNROLL
          for (std::int64_t n = 0; n * kLine < kBytes; ++n) {
            if (n * kLine * kRowBlock / kBytes == r) fetch_near(near + n * kLine);
          }
        }
        KVPOOL_UNROLL
        for (int j = 0; j < kCount; ++j) acc[r][j] = V::fma(weight, value[j], acc[r][j]);
      }
    }
    KVPOOL_UNROLL
    for (int r = 0; r < kRowBlock; ++r) {
      KVPOOL_UNROLL
      for (int j = 0; j < kCount; ++j) V::store(out + r * t.acc_stride + j * V::kLanes, acc[r][j]);
    }
  }

  /// Elements [at, at + Steps * kStep) of four rows: keys in ascending order, as for every row alone.
  template <int Steps, bool Tail>
  static KVPOOL_INLINE void pv_chunk(const RowTask& t, const RowWalk& v, const PvRange& range, std::int64_t row,
                                     std::int64_t at, const float* factor) {
    static constexpr float kOnes[kRowBlock] = {1, 1, 1, 1};
    const std::int64_t low_end = least(range.all_lo, range.hi);
    if (range.lo < low_end) {
      pv_edge<Steps, Tail>(t, v, range, row, at, factor, range.lo, low_end);
      factor = kOnes;
    }
    pv_common<Steps, Tail>(t, v, range, row, at, factor);
    if (range.all_hi < range.hi) pv_edge<Steps, Tail>(t, v, range, row, at, kOnes, range.all_hi, range.hi);
  }

  static void pv_tile(const RowTask& t, const RowWalk& values, const TileSpan& s, const float* factor) {
    constexpr int kSteps = kWide / kVecs > 0 ? kWide / kVecs : 1;
    RowWalk walk = values;
    for (std::int64_t r = 0; r < t.rows; r += kRowBlock) {
      const PvRange range = pv_range(t, r, s);
      std::int64_t at = 0;
      for (; at + kSteps * kStep <= t.dim_v; at += kSteps * kStep)
        pv_chunk<kSteps, false>(t, walk, range, r, at, factor + r);
      for (; at + kStep <= t.dim_v; at += kStep) pv_chunk<1, false>(t, walk, range, r, at, factor + r);
      walk.feed = nullptr;
      walk.near = false;
      if (at < t.dim_v) pv_chunk<1, true>(t, walk, range, r, at, factor + r);
    }
  }

  // --- the whole task ---------------------------------------------------------------------------------

  static std::int64_t padded_rows(const RowTask& t) { return (t.rows + kRowBlock - 1) / kRowBlock * kRowBlock; }

  static void clear(const RowTask& t) {
    const std::int64_t padded = padded_rows(t);
    for (std::int64_t h = 0; h < t.heads; ++h) {
      const std::int64_t at = h * t.state_stride;
      for (std::int64_t i = 0; i < padded * t.acc_stride; ++i) t.acc[at + i] = 0;
      for (std::int64_t r = 0; r < padded; ++r) {
        t.max[at + r] = kMinusInf;
        t.sum[at + r] = 0;
      }
    }
  }

  static RowTask task_of_head(const RowTask& t, std::int64_t h) {
    RowTask one = t;
    one.keys += h * t.rows;
    one.scale += h;
    const std::int64_t element = t.bf16_queries ? 2 : 4;
    one.q = static_cast<const std::byte*>(t.q) + h * padded_rows(t) * t.q_stride * element;
    one.scores += h * padded_rows(t) * kKeyTile;
    one.acc += h * t.state_stride;
    one.max += h * t.state_stride;
    one.sum += h * t.state_stride;
    return one;
  }

  /// One tile of all heads. Dot products go through the heads every few keys, so that K is read in the order of memory.
  static void attend_tile(const RowTask* heads, std::int64_t count, const TileSpan& s, const std::byte* const* k,
                          const std::byte* const* v, LineFeed& feed) {
    const std::int64_t part = count == 1 ? kKeyTile : kDotKeys;
    for (std::int64_t i = s.lo / part * part; i < s.hi; i += part) {
      const TileSpan keys{s.first, most(s.lo, i), least(s.hi, i + part)};
      for (std::int64_t h = 0; h < count; ++h) dot_tile(heads[h], {k, h * heads[h].k.head_bytes, &feed, true}, keys);
    }
    for (std::int64_t h = 0; h < count; ++h) {
      const RowTask& t = heads[h];
      float factor[kMaxTaskRows];
      for (std::int64_t r = 0; r < t.rows; ++r) factor[r] = Softmax::step(t, r, s, r < kRowBlock ? &feed : nullptr);
      for (std::int64_t r = t.rows; r < padded_rows(t); ++r) factor[r] = 0;
      pv_tile(t, {v, h * t.v.head_bytes, &feed, count > 1 || L::kBytes == 1}, s, factor);
    }
  }

  static RowRuns k_runs(const RowTask& t, const TileSpan& s) {
    return RowRuns(t, t.k, t.dim * L::kBytes, s.first + s.lo, s.first + s.hi);
  }
  static RowRuns v_runs(const RowTask& t, const TileSpan& s) {
    return RowRuns(t, t.v, t.dim_v * L::kBytes, s.first + s.lo, s.first + s.hi);
  }

  static void attend(const RowTask& t) {
    clear(t);
    const std::byte* k[kKeyTile + kNear];
    const std::byte* v[kKeyTile + kNear];
    for (const std::byte*& row : k) row = t.k.base;  // so that every place can be fetched, used or not
    for (const std::byte*& row : v) row = t.v.base;
    const TileRows rows{k, v};
    RowTask heads[kMaxTaskHeads];
    for (std::int64_t h = 0; h < t.heads; ++h) heads[h] = task_of_head(t, h);
    LineFeed feed;
    TileSpan span = Tiles::span_of(t, t.begin);
    for (std::int64_t first = t.begin; first < t.end; first += kKeyTile) {
      const TileSpan next = Tiles::span_after(t, first);
      if (span.lo < span.hi) {
        Tiles::locate(t, span, rows);
        feed.start(v_runs(t, span), k_runs(t, next));
        attend_tile(heads, t.heads, span, k, v, feed);
      }
      span = next;
    }
  }

  static void element_order(bool bf16, std::int64_t dim, std::int32_t* order) {
    for (std::int64_t i = 0; i < dim; ++i) {
      const std::int64_t place = bf16 ? L::bf16_place(i % kStep) : L::place(i % kStep);
      order[i] = static_cast<std::int32_t>(i / kStep * kStep + place);
    }
  }
};

}  // namespace kvpool::kernels
