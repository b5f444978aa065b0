// The storage formats fp16, bf16, fp8 e4m3 and fp8 e5m2 with exact conversions, for host and device code alike.
//
// Everything is done on the bits, never by arithmetic on subnormal numbers: the results are the same when the caller
// has set "flush to zero" or "denormals are zero". Encoders round once, to nearest even, from a double: a quotient of a
// bf16 or fp16 number by an fp32 scale, taken in double, rounds as the exact quotient would.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define KVPOOL_HOST_DEVICE __host__ __device__
#else
#define KVPOOL_HOST_DEVICE
#endif

namespace kvpool::kernels {

struct Fp16 {
  std::uint16_t bits;
};
struct Bf16 {
  std::uint16_t bits;
};
struct E4m3 {  ///< 4 exponent bits, bias 7, no infinity, one NaN per sign, largest 448
  std::uint8_t bits;
};
struct E5m2 {  ///< 5 exponent bits, bias 15, infinities and NaNs as in IEEE, largest 57344
  std::uint8_t bits;
};

template <class To, class From>
KVPOOL_HOST_DEVICE inline To bit_cast_to(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

KVPOOL_HOST_DEVICE inline float to_float(float value) noexcept { return value; }

KVPOOL_HOST_DEVICE inline float to_float(Bf16 value) noexcept {
  return bit_cast_to<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Value of a small format with `man_bits` of mantissa whose smallest normal exponent is `emin`; finite numbers only.
KVPOOL_HOST_DEVICE inline float decode_finite(std::uint32_t magnitude, int man_bits, int emin, bool negative) noexcept {
  const std::uint32_t mantissa = magnitude & ((1U << man_bits) - 1U);
  const int exponent = static_cast<int>(magnitude >> man_bits);
  const std::uint32_t sign = negative ? 0x80000000U : 0U;
  if (exponent == 0) {  // mantissa * 2^(emin - man_bits) is a normal float
    const auto unit = bit_cast_to<float>(static_cast<std::uint32_t>(emin - man_bits + 127) << 23);
    const float value = static_cast<float>(static_cast<std::int32_t>(mantissa)) * unit;
    return bit_cast_to<float>(bit_cast_to<std::uint32_t>(value) | sign);
  }
  const auto biased = static_cast<std::uint32_t>(exponent + emin - 1 + 127);
  return bit_cast_to<float>(sign | (biased << 23) | (mantissa << (23 - man_bits)));
}

KVPOOL_HOST_DEVICE inline float special_float(bool is_nan, bool negative) noexcept {
  return bit_cast_to<float>((negative ? 0x80000000U : 0U) | (is_nan ? 0x7FC00000U : 0x7F800000U));
}

KVPOOL_HOST_DEVICE inline float to_float(Fp16 value) noexcept {
  const std::uint32_t magnitude = value.bits & 0x7FFFU;
  const bool negative = (value.bits & 0x8000U) != 0;
  if (magnitude >= 0x7C00U) return special_float(magnitude > 0x7C00U, negative);
  return decode_finite(magnitude, 10, -14, negative);
}

KVPOOL_HOST_DEVICE inline float to_float(E4m3 value) noexcept {
  const std::uint32_t magnitude = value.bits & 0x7FU;
  const bool negative = (value.bits & 0x80U) != 0;
  if (magnitude == 0x7FU) return special_float(true, negative);
  return decode_finite(magnitude, 3, -6, negative);
}

KVPOOL_HOST_DEVICE inline float to_float(E5m2 value) noexcept {
  const std::uint32_t magnitude = value.bits & 0x7FU;
  const bool negative = (value.bits & 0x80U) != 0;
  if (magnitude >= 0x7CU) return special_float(magnitude > 0x7CU, negative);
  return decode_finite(magnitude, 2, -14, negative);
}

/// Magnitude bits of |value| in a small format, rounded to nearest even, before any saturation; `bits` of a double that
/// is no NaN. Infinity gives a number above every finite one.
KVPOOL_HOST_DEVICE inline std::uint32_t round_magnitude(std::uint64_t bits, int man_bits, int emin) noexcept {
  const int biased = static_cast<int>((bits >> 52) & 0x7FFU);
  if (biased == 0) return 0;  // zero, or far below every format here
  if (biased == 0x7FF) return 0xFFFFFFU;
  const int exponent = biased - 1023;
  const std::uint64_t significand = (bits & 0xFFFFFFFFFFFFFULL) | 0x10000000000000ULL;
  const int below = exponent < emin ? emin - exponent : 0;
  const int shift = 52 - man_bits + below;
  if (shift > 54) return 0;
  const std::uint64_t half = 1ULL << (shift - 1);
  const std::uint64_t rest = significand & ((1ULL << shift) - 1ULL);
  std::uint64_t rounded = significand >> shift;
  if (rest > half || (rest == half && (rounded & 1ULL) != 0)) ++rounded;
  const auto offset = static_cast<std::uint64_t>(below > 0 ? 0 : exponent - emin) << man_bits;
  const std::uint64_t magnitude = rounded + offset;
  return magnitude > 0xFFFFFFU ? 0xFFFFFFU : static_cast<std::uint32_t>(magnitude);
}

KVPOOL_HOST_DEVICE inline bool is_nan_bits(std::uint64_t bits) noexcept {
  return (bits & 0x7FFFFFFFFFFFFFFFULL) > 0x7FF0000000000000ULL;
}

template <class T>
KVPOOL_HOST_DEVICE T encode(double value) noexcept;

/// bf16 of an fp32 number; a NaN stays one and keeps its sign.
KVPOOL_HOST_DEVICE inline Bf16 bf16_from_float(float value) noexcept {
  const auto bits = bit_cast_to<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}

template <>
KVPOOL_HOST_DEVICE inline float encode<float>(double value) noexcept {
  return static_cast<float>(value);
}

/// For values that are fp32 numbers.
template <>
KVPOOL_HOST_DEVICE inline Bf16 encode<Bf16>(double value) noexcept {
  return bf16_from_float(static_cast<float>(value));
}

/// Overflow gives infinity.
template <>
KVPOOL_HOST_DEVICE inline Fp16 encode<Fp16>(double value) noexcept {
  const auto bits = bit_cast_to<std::uint64_t>(value);
  const auto sign = static_cast<std::uint32_t>(bits >> 63) << 15;
  if (is_nan_bits(bits)) return {static_cast<std::uint16_t>(sign | 0x7E00U)};
  const std::uint32_t magnitude = round_magnitude(bits, 10, -14);
  return {static_cast<std::uint16_t>(sign | (magnitude > 0x7C00U ? 0x7C00U : magnitude))};
}

/// Saturates at 448, also from infinity.
template <>
KVPOOL_HOST_DEVICE inline E4m3 encode<E4m3>(double value) noexcept {
  const auto bits = bit_cast_to<std::uint64_t>(value);
  const auto sign = static_cast<std::uint32_t>(bits >> 63) << 7;
  if (is_nan_bits(bits)) return {static_cast<std::uint8_t>(sign | 0x7FU)};
  const std::uint32_t magnitude = round_magnitude(bits, 3, -6);
  return {static_cast<std::uint8_t>(sign | (magnitude > 0x7EU ? 0x7EU : magnitude))};
}

/// Saturates at 57344, also from infinity.
template <>
KVPOOL_HOST_DEVICE inline E5m2 encode<E5m2>(double value) noexcept {
  const auto bits = bit_cast_to<std::uint64_t>(value);
  const auto sign = static_cast<std::uint32_t>(bits >> 63) << 7;
  if (is_nan_bits(bits)) return {static_cast<std::uint8_t>(sign | 0x7EU)};
  const std::uint32_t magnitude = round_magnitude(bits, 2, -14);
  return {static_cast<std::uint8_t>(sign | (magnitude > 0x7BU ? 0x7BU : magnitude))};
}

template <class T>
inline constexpr bool kIsFp8 = false;
template <>
inline constexpr bool kIsFp8<E4m3> = true;
template <>
inline constexpr bool kIsFp8<E5m2> = true;

template <class T>
inline constexpr bool kIsBf16 = false;
template <>
inline constexpr bool kIsBf16<Bf16> = true;

/// What append stores: fp8 is divided by its scale, other formats are only cast.
template <class To, class From>
KVPOOL_HOST_DEVICE inline To stored_form(From value, float scale) noexcept {
  if constexpr (kIsFp8<To>) return encode<To>(static_cast<double>(to_float(value)) / static_cast<double>(scale));
  if constexpr (sizeof(To) == sizeof(float)) return to_float(value);
  if constexpr (kIsBf16<To>)
    return bf16_from_float(to_float(value));  // keeps subnormals whatever the rounding mode says
  return encode<To>(static_cast<double>(to_float(value)));
}

}  // namespace kvpool::kernels
