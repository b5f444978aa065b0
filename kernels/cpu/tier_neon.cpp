// 64-bit Arm: four lanes, thirty-two registers; what every such processor has.
#include <arm_neon.h>

#include "kernels/cpu/tier_dispatch.hpp"

namespace kvpool::kernels {
namespace {

struct NeonVec {
  using F = float32x4_t;
  static constexpr int kLanes = 4;
  static constexpr int kKeyBlock = 4;
  static constexpr int kWideVectors = 4;

  static F zero() { return vdupq_n_f32(0); }
  static F set1(float x) { return vdupq_n_f32(x); }
  static F ramp(float x) {
    const float steps[4] = {0, 1, 2, 3};
    return vaddq_f32(set1(x), vld1q_f32(steps));
  }
  static F load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, F x) { vst1q_f32(p, x); }
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F div(F a, F b) { return vdivq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F max_keep_nan(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static F round(F x) { return vrndnq_f32(x); }
  static F scale2(F x, F n) {
    const int32x4_t exponent = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
    return vmulq_f32(x, vreinterpretq_f32_s32(exponent));
  }
  static F zero_where_below(F x, F limit, F p) { return vbslq_f32(vcltq_f32(x, limit), zero(), p); }
  static F select_below(F x, F limit, F below, F other) { return vbslq_f32(vcltq_f32(x, limit), below, other); }
  static F abs(F x) { return vabsq_f32(x); }
  static F copy_sign(F x, F sign) {
    const uint32x4_t bit = vandq_u32(vreinterpretq_u32_f32(sign), vdupq_n_u32(0x80000000U));
    return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(x), bit));
  }
  static float first(F x) { return vgetq_lane_f32(x, 0); }
  static float reduce_add(F x) { return vaddvq_f32(x); }
  static float reduce_max(F x) {
    float top = vgetq_lane_f32(x, 0);
    top = vgetq_lane_f32(x, 1) > top ? vgetq_lane_f32(x, 1) : top;
    top = vgetq_lane_f32(x, 2) > top ? vgetq_lane_f32(x, 2) : top;
    return vgetq_lane_f32(x, 3) > top ? vgetq_lane_f32(x, 3) : top;
  }
  static void store_sums(const F (&acc)[kRowBlock][kKeyBlock], float* scores, std::int64_t stride) {
    for (int r = 0; r < kRowBlock; ++r) {
      const F left = vpaddq_f32(acc[r][0], acc[r][1]);
      const F right = vpaddq_f32(acc[r][2], acc[r][3]);
      vst1q_f32(scores + r * stride, vpaddq_f32(left, right));
    }
  }
  static void prefetch(const std::byte* p) { fetch_line(p); }
};

struct LoadF32 : InOrder<1> {
  static constexpr std::int64_t kBytes = 4;
  static void load(const std::byte* p, float32x4_t* out) {
    out[0] = vreinterpretq_f32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(p)));
  }
};

inline float32x4_t widen_half(uint16x4_t bits) { return vcvt_f32_f16(vreinterpret_f16_u16(bits)); }

struct LoadF16 : InOrder<1> {
  static constexpr std::int64_t kBytes = 2;
  static void load(const std::byte* p, float32x4_t* out) {
    out[0] = widen_half(vreinterpret_u16_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(p))));
  }
};

/// Eight numbers as four pairs: the even ones come first, then the odd ones.
struct LoadBf16 : EvenThenOdd<4> {
  static constexpr std::int64_t kBytes = 2;
  static void load(const std::byte* p, float32x4_t* out) {
    const uint32x4_t pairs = vreinterpretq_u32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(p)));
    out[0] = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    out[1] = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xFFFF0000U)));
  }
};

/// Eight fp8 numbers in order, by way of fp16, whose conversion takes subnormals whatever the mode.
struct EightBytes : InOrder<2> {
  static constexpr std::int64_t kBytes = 1;
  static uint16x8_t codes(const std::byte* p) { return vmovl_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(p))); }
};

/// Shifted by 7 an e4m3 number is the fp16 number times 2^-8.
struct LoadE4m3 : EightBytes {
  static void load(const std::byte* p, float32x4_t* out) {
    const uint16x8_t wide = codes(p);
    const uint16x8_t magnitude = vandq_u16(wide, vdupq_n_u16(0x7F));
    const uint16x8_t nan = vandq_u16(vceqq_u16(magnitude, vdupq_n_u16(0x7F)), vdupq_n_u16(0x7E00));
    const uint16x8_t sign = vshlq_n_u16(vandq_u16(wide, vdupq_n_u16(0x80)), 8);
    const uint16x8_t half = vorrq_u16(vorrq_u16(vshlq_n_u16(magnitude, 7), nan), sign);
    out[0] = vmulq_n_f32(widen_half(vget_low_u16(half)), 256.0F);
    out[1] = vmulq_n_f32(widen_half(vget_high_u16(half)), 256.0F);
  }
};

struct LoadE5m2 : EightBytes {
  static void load(const std::byte* p, float32x4_t* out) {
    const uint16x8_t half = vshlq_n_u16(codes(p), 8);
    out[0] = widen_half(vget_low_u16(half));
    out[1] = widen_half(vget_high_u16(half));
  }
};

using Tier = TierOf<NeonVec, LoadF32, LoadF16, LoadBf16, LoadE4m3, LoadE5m2>;
constexpr TierKernels kTable = Tier::table(CpuTier::neon);

}  // namespace

const TierKernels* neon_kernels() noexcept { return &kTable; }

}  // namespace kvpool::kernels
