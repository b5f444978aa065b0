// Paged attention of a RowTask, written once over a vector class V and a row loader L.
//
// Included by the tier files only, each of which is compiled with its own instruction-set flags. Nothing here may come
// from the standard library as an inline function: the linker keeps one copy of those, and it could be one that needs
// AVX-512. For the same reason V and L live in anonymous namespaces.
//
// Per tile of 128 keys: dot products in blocks of 4 rows x some keys, softmax step, then sum of p * v. While the dot
// products run, the V rows of the tile are prefetched; while the products with V run, the K rows of the next tile are.
// Prefetches are spread between the multiply-adds: a burst would fill the miss buffers and stall.
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

struct TileRows {
  const std::byte* k[kKeyTile];
  const std::byte* v[kKeyTile];
};

struct TileSpan {
  std::int64_t first;  ///< first key of the tile
  std::int64_t lo;     ///< keys any row needs, relative to first: [lo, hi)
  std::int64_t hi;
};

static constexpr float kMinusInf = -__builtin_inff();

template <class V, class L>
struct RowKernel {
  using F = typename V::F;
  static constexpr int kVecs = L::kVecs;
  static constexpr std::int64_t kStep = V::kLanes * kVecs;
  static constexpr int kKeys = V::kKeyBlock;
  static constexpr int kWide = V::kWideVectors;  ///< vectors of an accumulator chunk
  static constexpr std::size_t kKeyExtent = V::kKeyBlock;
  static constexpr std::size_t kVecExtent = L::kVecs;

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

  /// Row pointers of the tile; keys that no row needs point to one that some row needs.
  static void locate(const RowTask& t, const TileSpan& s, TileRows& rows) {
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

  // --- dot products -----------------------------------------------------------------------------------

  template <bool Tail>
  static KVPOOL_INLINE void dot_step(const std::byte* const* k, const float* q, std::int64_t stride, std::int64_t at,
                                     std::int64_t left, F (&acc)[kRowBlock][kKeyExtent]) {
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
        KVPOOL_UNROLL
        for (int i = 0; i < kKeys; ++i) acc[r][i] = V::fma(key[i][j], query, acc[r][i]);
      }
    }
  }

  /// Scores of kKeys keys for kRowBlock rows; prefetches the V rows of the same keys when `v` is given.
  static KVPOOL_INLINE void dot_block(const RowTask& t, const std::byte* const* k, const std::byte* const* v,
                                      std::int64_t v_bytes, std::int64_t row, float* scores) {
    const float* q = static_cast<const float*>(t.q) + row * t.q_stride;
    F acc[kRowBlock][kKeyExtent];
    KVPOOL_UNROLL
    for (int r = 0; r < kRowBlock; ++r) {
      KVPOOL_UNROLL
      for (int i = 0; i < kKeys; ++i) acc[r][i] = V::zero();
    }
    std::int64_t at = 0;
    std::int64_t line = 0;
    for (; at + kStep <= t.dim; at += kStep) {
      if (line < v_bytes) {
        KVPOOL_UNROLL
        for (int i = 0; i < kKeys; ++i) V::prefetch(v[i] + line);
        line += 64;
      }
      dot_step<false>(k, q, t.q_stride, at, 0, acc);
    }
    if (at < t.dim) dot_step<true>(k, q, t.q_stride, at, t.dim - at, acc);
    V::store_sums(acc, scores, kKeyTile);
  }

  static void dot_tile(const RowTask& t, const TileRows& rows, const TileSpan& s) {
    const std::int64_t v_bytes = t.dim_v * L::kBytes;
    for (std::int64_t i = s.lo & ~std::int64_t{kKeys - 1}; i < s.hi; i += kKeys) {
      const bool whole = i >= s.lo && i + kKeys <= s.hi;
      for (std::int64_t r = 0; r < t.rows; r += kRowBlock) {
        const std::int64_t ahead = r == 0 && whole ? v_bytes : 0;
        float* scores = t.scores + r * kKeyTile + i;
        if constexpr (L::kBf16Dot) {
          if (t.bf16_queries) {
            L::dot_block_bf16(t, rows.k + i, rows.v + i, ahead, r, scores);
            continue;
          }
        }
        dot_block(t, rows.k + i, rows.v + i, ahead, r, scores);
      }
    }
  }

  // --- softmax ----------------------------------------------------------------------------------------

  /// exp(x) for x <= 0 within 2 ulp; 0 below -87.3; NaN stays NaN.
  static KVPOOL_INLINE F exp_neg(F x) {
    const F limit = V::set1(-87.33F);
    const F clamped = V::max_keep_nan(limit, x);
    const F n = V::round(V::mul(clamped, V::set1(1.44269504F)));
    F r = V::fma(n, V::set1(-0.693359375F), clamped);
    r = V::fma(n, V::set1(2.12194440e-4F), r);
    F p = V::set1(1.9875691500e-4F);
    p = V::fma(p, r, V::set1(1.3981999507e-3F));
    p = V::fma(p, r, V::set1(8.3334519073e-3F));
    p = V::fma(p, r, V::set1(4.1665795894e-2F));
    p = V::fma(p, r, V::set1(1.6666665459e-1F));
    p = V::fma(p, r, V::set1(5.0000001201e-1F));
    p = V::fma(p, V::mul(r, r), V::add(r, V::set1(1.0F)));
    return V::zero_where_below(x, limit, V::scale2(p, n));
  }

  /// tanh: odd polynomial near 0, 1 - 2 / (exp(2x) + 1) elsewhere.
  static KVPOOL_INLINE F tanh(F x) {
    const F magnitude = V::abs(x);
    const F square = V::mul(x, x);
    F p = V::set1(-5.70498872745e-3F);
    p = V::fma(p, square, V::set1(2.06390887954e-2F));
    p = V::fma(p, square, V::set1(-5.37397155531e-2F));
    p = V::fma(p, square, V::set1(1.33314422036e-1F));
    p = V::fma(p, square, V::set1(-3.33332819422e-1F));
    const F small = V::fma(V::mul(p, square), x, x);
    const F e = exp_neg(V::mul(magnitude, V::set1(-2.0F)));  // 1 - 2e / (1 + e)
    const F big = V::fma(V::div(e, V::add(e, V::set1(1.0F))), V::set1(-2.0F), V::set1(1.0F));
    return V::select_below(magnitude, V::set1(0.625F), small, V::copy_sign(big, x));
  }

  /// Scores become probabilities against the new maximum; returns the factor for what was summed before.
  static float softmax_row(const RowTask& t, std::int64_t r, const TileSpan& s) {
    float* scores = t.scores + r * kKeyTile;
    const std::int64_t lo = row_lo(t, r, s);
    const std::int64_t hi = row_hi(t, r, s, s.hi);
    const std::int64_t from = s.lo / V::kLanes * V::kLanes;
    const std::int64_t to = (s.hi + V::kLanes - 1) / V::kLanes * V::kLanes;
    if (lo >= hi) {
      for (std::int64_t i = from; i < to; ++i) scores[i] = 0;
      return 1;
    }
    const RowKeys& keys = t.keys[r];
    const F scale = V::set1(t.scale);
    if (t.soft_cap > 0 || t.alibi) {
      const F to_unit = V::set1(t.soft_cap > 0 ? 1.0F / t.soft_cap : 0.0F);
      for (std::int64_t i = from; i < to; i += V::kLanes) {
        F x = V::mul(V::load(scores + i), scale);
        if (t.soft_cap > 0) x = V::mul(V::set1(t.soft_cap), tanh(V::mul(x, to_unit)));
        if (t.alibi) x = V::fma(V::ramp(static_cast<float>(s.first + i - keys.position)), V::set1(keys.slope), x);
        V::store(scores + i, x);
      }
    } else {
      for (std::int64_t i = from; i < to; i += V::kLanes) V::store(scores + i, V::mul(V::load(scores + i), scale));
    }
    for (std::int64_t i = from; i < lo; ++i) scores[i] = kMinusInf;
    for (std::int64_t i = hi; i < to; ++i) scores[i] = kMinusInf;

    F top = V::set1(t.max[r]);
    for (std::int64_t i = from; i < to; i += V::kLanes) top = V::max_keep_nan(top, V::load(scores + i));
    const float seen = V::reduce_max(top);
    const float next = seen > t.max[r] ? seen : t.max[r];
    const F base = V::set1(next == kMinusInf ? 0.0F : next);
    F total = V::zero();
    for (std::int64_t i = from; i < to; i += V::kLanes) {
      const F p = exp_neg(V::sub(V::load(scores + i), base));
      V::store(scores + i, p);
      total = V::add(total, p);
    }
    const float factor = t.max[r] == kMinusInf ? 0.0F : V::first(exp_neg(V::sub(V::set1(t.max[r]), base)));
    t.sum[r] = t.sum[r] * factor + V::reduce_add(total);
    t.max[r] = next;
    return factor;
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
      p.row_lo[r] = row_lo(t, source, s);
      p.row_hi[r] = row_hi(t, source, s, s.hi);
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
  static __attribute__((noinline)) void pv_edge(const RowTask& t, const std::byte* const* v, const PvRange& range,
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
        load_value<Steps, Tail>(v[i], at, t.dim_v - at, value);
        for (int j = 0; j < kCount; ++j) acc[j] = V::fma(V::set1(p[i]), value[j], acc[j]);
      }
      for (int j = 0; j < kCount; ++j) V::store(out + j * V::kLanes, acc[j]);
    }
  }

  /// out = out * factor + sum of p * v for the keys that all four rows need.
  template <int Steps, bool Tail>
  static KVPOOL_INLINE void pv_common(const RowTask& t, const std::byte* const* v, const std::byte* const* next_k,
                                      std::int64_t ahead, const PvRange& range, std::int64_t row, std::int64_t at,
                                      const float* factor) {
    constexpr int kCount = Steps * kVecs;
    constexpr std::size_t kExtent = kCount;
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
      load_value<Steps, Tail>(v[i], at, t.dim_v - at, value);
      if (i < ahead) {
        KVPOOL_UNROLL
        for (int line = 0; line < (Steps * kStep * L::kBytes + 63) / 64; ++line)
          V::prefetch(next_k[i] + at * L::kBytes + line * 64);
      }
      KVPOOL_UNROLL
      for (int r = 0; r < kRowBlock; ++r) {
        const F weight = V::set1(p[r * kKeyTile + i]);
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
  static KVPOOL_INLINE void pv_chunk(const RowTask& t, const std::byte* const* v, const std::byte* const* next_k,
                                     std::int64_t ahead, const PvRange& range, std::int64_t row, std::int64_t at,
                                     const float* factor) {
    static constexpr float kOnes[kRowBlock] = {1, 1, 1, 1};
    const std::int64_t low_end = least(range.all_lo, range.hi);
    if (range.lo < low_end) {
      pv_edge<Steps, Tail>(t, v, range, row, at, factor, range.lo, low_end);
      factor = kOnes;
    }
    pv_common<Steps, Tail>(t, v, next_k, ahead, range, row, at, factor);
    if (range.all_hi < range.hi) pv_edge<Steps, Tail>(t, v, range, row, at, kOnes, range.all_hi, range.hi);
  }

  static void pv_tile(const RowTask& t, const TileRows& rows, const TileRows& next, const TileSpan& s,
                      const TileSpan& next_span, const float* factor) {
    constexpr int kSteps = kWide / kVecs > 0 ? kWide / kVecs : 1;
    const std::int64_t next_whole = next_span.lo == 0 ? next_span.hi : 0;
    for (std::int64_t r = 0; r < t.rows; r += kRowBlock) {
      const PvRange range = pv_range(t, r, s);
      const std::int64_t ahead = r == 0 ? next_whole : 0;
      std::int64_t at = 0;
      for (; at + kSteps * kStep <= t.dim_v; at += kSteps * kStep)
        pv_chunk<kSteps, false>(t, rows.v, next.k, ahead, range, r, at, factor + r);
      for (; at + kStep <= t.dim_v; at += kStep) pv_chunk<1, false>(t, rows.v, next.k, ahead, range, r, at, factor + r);
      if (at < t.dim_v) pv_chunk<1, true>(t, rows.v, next.k, 0, range, r, at, factor + r);
    }
  }

  // --- the whole task ---------------------------------------------------------------------------------

  static void clear(const RowTask& t) {
    const std::int64_t padded = (t.rows + kRowBlock - 1) / kRowBlock * kRowBlock;
    for (std::int64_t i = 0; i < padded * t.acc_stride; ++i) t.acc[i] = 0;
    for (std::int64_t r = 0; r < padded; ++r) {
      t.max[r] = kMinusInf;
      t.sum[r] = 0;
    }
  }

  static void attend(const RowTask& t) {
    clear(t);
    TileRows buffers[2];
    float factor[kMaxTaskRows];
    TileSpan span = span_of(t, t.begin);
    locate(t, span, buffers[0]);
    int current = 0;
    for (std::int64_t first = t.begin; first < t.end; first += kKeyTile) {
      TileSpan next{first + kKeyTile, 0, 0};
      if (next.first < t.end) {
        next = span_of(t, next.first);
        locate(t, next, buffers[1 - current]);
      }
      if (span.lo < span.hi) {
        dot_tile(t, buffers[current], span);
        for (std::int64_t r = 0; r < t.rows; ++r) factor[r] = softmax_row(t, r, span);
        const std::int64_t padded = (t.rows + kRowBlock - 1) / kRowBlock * kRowBlock;
        for (std::int64_t r = t.rows; r < padded; ++r) factor[r] = 0;
        pv_tile(t, buffers[current], buffers[1 - current], span, next, factor);
      }
      span = next;
      current = 1 - current;
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
