// The softmax step of one row over one tile, written once over a vector class V.
//
// Included by the tier files only; see row_kernel.hpp for what that forbids.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/row_tiles.hpp"

namespace kvpool::kernels {

static constexpr float kMinusInf = -__builtin_inff();

template <class V>
struct RowSoftmax {
  using F = typename V::F;
  using Tiles = RowTiles<V>;

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
  static float step(const RowTask& t, std::int64_t r, const TileSpan& s, LineFeed* feed) {
    float* scores = t.scores + r * kKeyTile;
    const std::int64_t lo = Tiles::row_lo(t, r, s);
    const std::int64_t hi = Tiles::row_hi(t, r, s, s.hi);
    const std::int64_t from = s.lo / V::kLanes * V::kLanes;
    const std::int64_t to = (s.hi + V::kLanes - 1) / V::kLanes * V::kLanes;
    if (lo >= hi) {
      for (std::int64_t i = from; i < to; ++i) scores[i] = 0;
      return 1;
    }
    const RowKeys& keys = t.keys[r];
    const F scale = V::set1(*t.scale);
    if (t.soft_cap > 0 || t.alibi) {
      const F to_unit = V::set1(t.soft_cap > 0 ? 1.0F / t.soft_cap : 0.0F);
      for (std::int64_t i = from; i < to; i += V::kLanes) {
        F x = V::mul(V::load(scores + i), scale);
        if (t.soft_cap > 0) x = V::mul(V::set1(t.soft_cap), tanh(V::mul(x, to_unit)));
        if (t.alibi) x = V::fma(V::ramp(static_cast<float>(s.first + i - keys.origin)), V::set1(keys.slope), x);
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
      if (feed != nullptr) feed->template take<kLinesInSoftmax>();
      V::store(scores + i, p);
      total = V::add(total, p);
    }
    const float factor = t.max[r] == kMinusInf ? 0.0F : V::first(exp_neg(V::sub(V::set1(t.max[r]), base)));
    t.sum[r] = t.sum[r] * factor + V::reduce_add(total);
    t.max[r] = next;
    return factor;
  }
};

}  // namespace kvpool::kernels
