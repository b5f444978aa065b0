// Sixteen lanes, thirty-two registers: the vector class and loaders that both AVX-512 tiers use.
// In an anonymous namespace on purpose: each tier file gets code made with its own flags.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/tier_dispatch.hpp"

namespace kvpool::kernels {
namespace {

struct Avx512Vec {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kKeyBlock = 4;
  static constexpr int kWideVectors = 4;

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F ramp(float x) {
    return _mm512_add_ps(set1(x), _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max_keep_nan(F a, F b) { return _mm512_max_ps(a, b); }
  static F round(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F scale2(F x, F n) { return _mm512_scalef_ps(x, n); }
  static F zero_where_below(F x, F limit, F p) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), p);
  }
  static F select_below(F x, F limit, F below, F other) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, limit, _CMP_LT_OQ), other, below);
  }
  static F abs(F x) { return _mm512_abs_ps(x); }
  static F copy_sign(F x, F sign) { return _mm512_or_ps(x, _mm512_and_ps(set1(-0.0F), sign)); }
  static float first(F x) { return _mm512_cvtss_f32(x); }
  static float reduce_add(F x) { return _mm512_reduce_add_ps(x); }
  static float reduce_max(F x) { return _mm512_reduce_max_ps(x); }

  /// Four vectors to one: lane group g holds the sums over that group of a, b, c, d.
  static F fold4(F a, F b, F c, F d) {
    const F ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const F cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0)),
                         _mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2)));
  }
  static F join2(F a, F b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(2, 0, 2, 0)),
                         _mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(3, 1, 3, 1)));
  }
  /// Sixteen dot products at once; every one is added up in the same tree, so its place does not matter.
  static void store_sums(const F (&acc)[kRowBlock][kKeyBlock], float* scores, std::int64_t stride) {
    const F r0 = fold4(acc[0][0], acc[0][1], acc[0][2], acc[0][3]);
    const F r1 = fold4(acc[1][0], acc[1][1], acc[1][2], acc[1][3]);
    const F r2 = fold4(acc[2][0], acc[2][1], acc[2][2], acc[2][3]);
    const F r3 = fold4(acc[3][0], acc[3][1], acc[3][2], acc[3][3]);
    const F sums = join2(join2(r0, r1), join2(r2, r3));
    _mm_storeu_ps(scores, _mm512_castps512_ps128(sums));
    _mm_storeu_ps(scores + stride, _mm512_extractf32x4_ps(sums, 1));
    _mm_storeu_ps(scores + 2 * stride, _mm512_extractf32x4_ps(sums, 2));
    _mm_storeu_ps(scores + 3 * stride, _mm512_extractf32x4_ps(sums, 3));
  }
  static void prefetch(const std::byte* p) { fetch_line(p); }
};

struct LoadF32 : InOrder<1> {
  static constexpr std::int64_t kBytes = 4;
  static void load(const std::byte* p, __m512* out) { out[0] = _mm512_loadu_ps(reinterpret_cast<const float*>(p)); }
};

struct LoadF16 : InOrder<1> {
  static constexpr std::int64_t kBytes = 2;
  static void load(const std::byte* p, __m512* out) {
    out[0] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
};

/// The even and the odd members of sixteen bf16 pairs.
inline void widen_pairs(__m512i pairs, __m512* out) {
  out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  out[1] = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
}

struct LoadBf16 : EvenThenOdd<16> {
  static constexpr std::int64_t kBytes = 2;
  static void load(const std::byte* p, __m512* out) { widen_pairs(_mm512_loadu_si512(p), out); }
};

}  // namespace
}  // namespace kvpool::kernels
