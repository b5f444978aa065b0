// AVX2 + FMA + F16C: eight lanes, sixteen registers.
#include <immintrin.h>

#include "kernels/cpu/tier_dispatch.hpp"

namespace kvpool::kernels {
namespace {

struct Avx2Vec {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kKeyBlock = 2;
  static constexpr int kWideVectors = 2;

  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F ramp(float x) { return _mm256_add_ps(set1(x), _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7)); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max_keep_nan(F a, F b) { return _mm256_max_ps(a, b); }
  static F round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F scale2(F x, F n) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(exponent));
  }
  static F zero_where_below(F x, F limit, F p) { return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), p); }
  static F select_below(F x, F limit, F below, F other) {
    return _mm256_blendv_ps(other, below, _mm256_cmp_ps(x, limit, _CMP_LT_OQ));
  }
  static F abs(F x) { return _mm256_andnot_ps(set1(-0.0F), x); }
  static F copy_sign(F x, F sign) { return _mm256_or_ps(x, _mm256_and_ps(set1(-0.0F), sign)); }
  static float first(F x) { return _mm256_cvtss_f32(x); }
  static float reduce_add(F x) {
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
  }
  static float reduce_max(F x) {
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
  }
  /// Sums of four vectors, each added up in the same tree.
  static __m128 sum4(F a, F b, F c, F d) {
    const F ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));  // a02 b02 a13 b13
    const F cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const F x = _mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0));
    const F y = _mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2));
    const F sums = _mm256_add_ps(x, y);
    return _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
  }
  static void store_sums(const F (&acc)[kRowBlock][kKeyBlock], float* scores, std::int64_t stride) {
    const __m128 low = sum4(acc[0][0], acc[0][1], acc[1][0], acc[1][1]);
    const __m128 high = sum4(acc[2][0], acc[2][1], acc[3][0], acc[3][1]);
    _mm_storel_pi(reinterpret_cast<__m64*>(scores), low);
    _mm_storeh_pi(reinterpret_cast<__m64*>(scores + stride), low);
    _mm_storel_pi(reinterpret_cast<__m64*>(scores + 2 * stride), high);
    _mm_storeh_pi(reinterpret_cast<__m64*>(scores + 3 * stride), high);
  }
  static void prefetch(const std::byte* p) { fetch_line(p); }
};

struct LoadF32 : InOrder<1> {
  static constexpr std::int64_t kBytes = 4;
  static void load(const std::byte* p, __m256* out) { out[0] = _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};

struct LoadF16 : InOrder<1> {
  static constexpr std::int64_t kBytes = 2;
  static void load(const std::byte* p, __m256* out) {
    out[0] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};

/// Sixteen numbers as eight pairs: the even ones come first, then the odd ones.
struct LoadBf16 : EvenThenOdd<8> {
  static constexpr std::int64_t kBytes = 2;
  static void load(const std::byte* p, __m256* out) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    out[1] = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
  }
};

/// By way of fp16, whose conversion takes subnormals whatever the mode: e4m3 shifted by 7 is the number times 2^-8.
struct LoadE4m3 : InOrder<1> {
  static constexpr std::int64_t kBytes = 1;
  static void load(const std::byte* p, __m256* out) {
    const __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i magnitude = _mm_and_si128(wide, _mm_set1_epi16(0x7F));
    const __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7F)), _mm_set1_epi16(0x7E00));
    const __m128i sign = _mm_slli_epi16(_mm_andnot_si128(_mm_set1_epi16(0x7F), wide), 8);
    const __m128i half = _mm_or_si128(_mm_or_si128(_mm_slli_epi16(magnitude, 7), nan), sign);
    out[0] = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0F));
  }
};

struct LoadE5m2 : InOrder<1> {
  static constexpr std::int64_t kBytes = 1;
  static void load(const std::byte* p, __m256* out) {
    const __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    out[0] = _mm256_cvtph_ps(_mm_slli_epi16(wide, 8));
  }
};

using Tier = TierOf<Avx2Vec, LoadF32, LoadF16, LoadBf16, LoadE4m3, LoadE5m2>;
constexpr TierKernels kTable = Tier::table(CpuTier::avx2);

}  // namespace

const TierKernels* avx2_kernels() noexcept { return &kTable; }

}  // namespace kvpool::kernels
