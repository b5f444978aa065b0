// Attention over the 656-byte fp8 rows of latent attention, read in place: the rows of a tile become fp32 in a buffer
// that stays in the second-level cache, and the kernel for fp32 rows computes on that. K and V are the same rows, so
// that a row is expanded once per tile for up to 64 query rows.
//
// Included by the tier files only; see row_kernel.hpp for what that forbids.
#pragma once

#include "kernels/cpu/row_kernel.hpp"

namespace kvpool::kernels {

/// `Rows` loads fp32 in order; `Fp8` and `B16` say how the tier widens the two parts of a row, and with it in which
/// order their elements come to stand.
template <class V, class Rows, class Fp8, class B16>
struct LatentKernel {
  using F = typename V::F;
  using Kernel = RowKernel<V, Rows>;
  using Tiles = RowTiles<V>;
  static constexpr std::int64_t kLatent = 512;
  static constexpr std::int64_t kGroup = 128;
  static constexpr std::int64_t kRope = 64;
  static constexpr std::int64_t kBytes = 656;
  static constexpr std::int64_t kFp8Step = V::kLanes * Fp8::kVecs;
  static constexpr std::int64_t kB16Step = V::kLanes * B16::kVecs;
  static_assert(kLatent + kRope == kLatentTileRow && kGroup % kFp8Step == 0 && kRope % kB16Step == 0);

  static void expand(const std::byte* row, float* out) {
    for (std::int64_t g = 0; g < kLatent / kGroup; ++g) {
      float scale = 0;
      __builtin_memcpy(&scale, row + kLatent + g * 4, sizeof(scale));
      const F factor = V::set1(scale);
      for (std::int64_t at = g * kGroup; at < (g + 1) * kGroup; at += kFp8Step) {
        F value[std::size_t{Fp8::kVecs}];
        Fp8::load(row + at, value);
        KVPOOL_UNROLL
        for (int j = 0; j < Fp8::kVecs; ++j) V::store(out + at + j * V::kLanes, V::mul(value[j], factor));
      }
    }
    const std::byte* rope = row + kLatent + kLatent / kGroup * 4;
    for (std::int64_t at = 0; at < kRope; at += kB16Step) {
      F value[std::size_t{B16::kVecs}];
      B16::load(rope + at * 2, value);
      KVPOOL_UNROLL
      for (int j = 0; j < B16::kVecs; ++j) V::store(out + kLatent + at + j * V::kLanes, value[j]);
    }
  }

  /// Pointers to the rows of a tile become pointers to their expanded form; places that no row needs point to one.
  static void expand_tile(const RowTask& t, const TileSpan& s, const std::byte** rows) {
    for (std::int64_t i = s.lo; i < s.hi; ++i) {
      float* place = t.expanded + i * kLatentTileRow;
      expand(rows[i], place);
      rows[i] = reinterpret_cast<const std::byte*>(place);
    }
    constexpr std::int64_t kKeys = V::kKeyBlock;
    for (std::int64_t i = s.lo & ~(kKeys - 1); i < s.lo; ++i) rows[i] = rows[s.lo];
    for (std::int64_t i = s.hi; i < ((s.hi + kKeys - 1) & ~(kKeys - 1)); ++i) rows[i] = rows[s.hi - 1];
  }

  static RowRuns runs(const RowTask& t, const TileSpan& s) {
    return RowRuns(t, t.k, kBytes, s.first + s.lo, s.first + s.hi);
  }

  static void attend(const RowTask& t) {
    Kernel::clear(t);
    const std::byte* k[kKeyTile + kNear];
    const std::byte* v[kKeyTile + kNear];
    for (const std::byte*& row : k) row = t.k.base;  // so that every place can be fetched, used or not
    for (const std::byte*& row : v) row = t.v.base;
    LineFeed feed;
    TileSpan span = Tiles::span_of(t, t.begin);
    for (std::int64_t first = t.begin; first < t.end; first += kKeyTile) {
      const TileSpan next = Tiles::span_after(t, first);
      if (span.lo < span.hi) {
        Tiles::locate(t, span, {k, v});
        expand_tile(t, span, k);
        feed.start(runs(t, next), RowRuns());
        Kernel::attend_tile(&t, 1, span, k, k, feed);
      }
      span = next;
    }
  }

  static void element_order(std::int64_t dim, std::int32_t* order) {
    for (std::int64_t i = 0; i < dim; ++i) {
      const std::int64_t place = i < kLatent ? i / kFp8Step * kFp8Step + Fp8::place(i % kFp8Step)
                                             : i / kB16Step * kB16Step + B16::place(i % kB16Step);
      order[i] = static_cast<std::int32_t>(place);
    }
  }
};

}  // namespace kvpool::kernels
