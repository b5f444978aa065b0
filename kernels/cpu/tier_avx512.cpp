// AVX-512 F, BW, VL, DQ: fp8 by way of fp16.
#include "kernels/cpu/avx512_vector.hpp"

namespace kvpool::kernels {
namespace {

/// e4m3 shifted by 7 is the fp16 number times 2^-8; the fp16 conversion takes subnormals whatever the mode.
struct LoadE4m3 : InOrder<1> {
  static constexpr std::int64_t kBytes = 1;
  static void load(const std::byte* p, __m512* out) {
    const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi16(0x7F));
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7F));
    const __m256i sign = _mm256_slli_epi16(_mm256_andnot_si256(_mm256_set1_epi16(0x7F), wide), 8);
    const __m256i half = _mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign);
    const __m256i kept = _mm256_mask_blend_epi16(nan, half, _mm256_or_si256(half, _mm256_set1_epi16(0x7E00)));
    out[0] = _mm512_mul_ps(_mm512_cvtph_ps(kept), _mm512_set1_ps(256.0F));
  }
};

struct LoadE5m2 : InOrder<1> {
  static constexpr std::int64_t kBytes = 1;
  static void load(const std::byte* p, __m512* out) {
    const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    out[0] = _mm512_cvtph_ps(_mm256_slli_epi16(wide, 8));
  }
};

using Tier = TierOf<Avx512Vec, LoadF32, LoadF16, LoadBf16, LoadE4m3, LoadE5m2>;
constexpr TierKernels kTable = Tier::table(CpuTier::avx512);

}  // namespace

const TierKernels* avx512_kernels() noexcept { return &kTable; }

}  // namespace kvpool::kernels
