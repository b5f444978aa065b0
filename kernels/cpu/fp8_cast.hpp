// Rows of real numbers to fp8, as the compiler makes vectors of them for the tier's instruction set: no branches, one
// division in double and one rounding a number, as in number_formats.hpp, whose results these are.
//
// Included by the tier files only; see row_kernel.hpp for what that forbids. Hence also its own conversions.
#pragma once

#include <cstdint>

#include "kernels/cpu/line_feed.hpp"
#include "kvpool/config/kv_cache_spec.hpp"

namespace kvpool::kernels {
namespace {

template <class To, class From>
KVPOOL_INLINE To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

struct FromFp32 {
  static constexpr std::int64_t kBytes = 4;
  static KVPOOL_INLINE float at(const std::byte* p) {
    float x;
    __builtin_memcpy(&x, p, sizeof(x));
    return x;
  }
};
struct FromBf16 {
  static constexpr std::int64_t kBytes = 2;
  static KVPOOL_INLINE float at(const std::byte* p) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, p, sizeof(bits));
    return same_bits<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};
struct FromFp16 {
  static constexpr std::int64_t kBytes = 2;
  static KVPOOL_INLINE float at(const std::byte* p) {
    std::uint16_t raw;
    __builtin_memcpy(&raw, p, sizeof(raw));
    const std::uint32_t magnitude = raw & 0x7FFFU;
    const auto tiny = same_bits<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F);
    const std::uint32_t rebias = magnitude >= 0x7C00U ? 224U << 23 : 112U << 23;
    const std::uint32_t bits = magnitude < 0x400U ? tiny : (magnitude << 13) + rebias;
    return same_bits<float>(bits | (raw & 0x8000U) << 16);
  }
};

/// An fp8 format: bits of the mantissa, exponent of the smallest normal number, codes of the largest number and of NaN.
template <int ManBits, int MinExponent, std::int64_t Largest, std::int64_t Nan>
struct ToFp8 {
  static KVPOOL_INLINE std::uint8_t from(double value) {
    constexpr int kShift = 52 - ManBits;
    constexpr std::int64_t kInfinity = 0x7FFLL << 52;
    constexpr std::int64_t kFirstNormal = static_cast<std::int64_t>(1023 + MinExponent) << 52;
    constexpr std::int64_t kLift = static_cast<std::int64_t>(1023 + MinExponent + kShift) << 52;
    const auto bits = same_bits<std::int64_t>(value);
    const std::int64_t magnitude = bits & 0x7FFFFFFFFFFFFFFFLL;
    // Without sign: the largest NaN would overflow, before its code is replaced below.
    const auto unrounded = static_cast<std::uint64_t>(magnitude);
    const std::uint64_t odd = (unrounded >> kShift) & 1U;
    const std::int64_t normal = static_cast<std::int64_t>((unrounded + ((1ULL << (kShift - 1)) - 1) + odd) >> kShift) -
                                (static_cast<std::int64_t>(1022 + MinExponent) << ManBits);
    // Added to a number whose last place is that of the subnormals, a smaller one is rounded there.
    const std::int64_t small = same_bits<std::int64_t>(same_bits<double>(magnitude) + same_bits<double>(kLift)) - kLift;
    std::int64_t code = magnitude < kFirstNormal ? small : normal;
    code = code > Largest ? Largest : code;
    code = magnitude > kInfinity ? Nan : code;
    return static_cast<std::uint8_t>(code | (static_cast<std::int64_t>(bits < 0) << 7));
  }
};
using ToE4m3 = ToFp8<3, -6, 0x7E, 0x7F>;
using ToE5m2 = ToFp8<2, -14, 0x7B, 0x7E>;

template <class From, class To>
void cast_to_fp8(const std::byte* source, std::byte* target, std::int64_t count, float scale) {
  constexpr std::int64_t kChunk = 64;
  const auto divisor = static_cast<double>(scale);
  auto* to = reinterpret_cast<std::uint8_t*>(target);
  for (; count >= kChunk; count -= kChunk) {
    for (std::int64_t i = 0; i < kChunk; ++i)
      to[i] = To::from(static_cast<double>(From::at(source + i * From::kBytes)) / divisor);
    source += kChunk * From::kBytes;
    to += kChunk;
  }
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = To::from(static_cast<double>(From::at(source + i * From::kBytes)) / divisor);
}

template <class From>
void cast_row_to_fp8(DType to, const std::byte* source, std::byte* target, std::int64_t count, float scale) {
  if (to == DType::fp8_e4m3) {
    cast_to_fp8<From, ToE4m3>(source, target, count, scale);
  } else {
    cast_to_fp8<From, ToE5m2>(source, target, count, scale);
  }
}

void to_fp8(DType from, DType to, const std::byte* source, std::byte* target, std::int64_t count, float scale) {
  switch (from) {
    case DType::float16: return cast_row_to_fp8<FromFp16>(to, source, target, count, scale);
    case DType::bfloat16: return cast_row_to_fp8<FromBf16>(to, source, target, count, scale);
    default: return cast_row_to_fp8<FromFp32>(to, source, target, count, scale);
  }
}

}  // namespace
}  // namespace kvpool::kernels
