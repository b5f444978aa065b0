// The small formats against exact arithmetic: every code decoded, every bf16 number cast to both fp8 formats.
#include "kernels/number_formats.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace kvpool::kernels {
namespace {

/// A format as its standard describes it.
struct Format {
  int man_bits;
  int bias;
  unsigned max_finite;
  unsigned nan_from;  ///< magnitudes from here on are NaN
};
constexpr Format kE4m3{3, 7, 0x7E, 0x7F};
constexpr Format kE5m2{2, 15, 0x7B, 0x7D};
constexpr Format kFp16{10, 15, 0x7BFF, 0x7C01};

double value_of(const Format& f, unsigned magnitude) {
  const unsigned mantissa = magnitude & ((1U << f.man_bits) - 1U);
  const int exponent = static_cast<int>(magnitude >> f.man_bits);
  if (exponent == 0) return std::ldexp(mantissa, 1 - f.bias - f.man_bits);
  return std::ldexp(mantissa + (1U << f.man_bits), exponent - f.bias - f.man_bits);
}

/// Exact value of a bf16 number, without any float on the way.
double value_of_bf16(std::uint16_t bits) {
  const int exponent = (bits >> 7) & 0xFF;
  const int mantissa = bits & 0x7F;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -133) : std::ldexp(mantissa + 128, exponent - 134);
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

/// Nearest magnitude to x / scale, ties to even, saturating. A midpoint times a scale has at most 29 significant bits,
/// so the comparison in double is exact.
unsigned nearest(const Format& f, double x, double scale) {
  unsigned magnitude = 0;
  while (magnitude < f.max_finite) {
    const double middle = (value_of(f, magnitude) + value_of(f, magnitude + 1)) / 2 * scale;
    if (x < middle || (x == middle && magnitude % 2 == 0)) break;
    ++magnitude;
  }
  return magnitude;
}

template <class T>
void check_every_bf16(const Format& f) {
  for (const float scale : {1.0F, 0.5F, 0.01F, 0.05F, 3.14159F, 1.0F / 448.0F, 123.456F}) {
    std::vector<double> middles;  // the same search as nearest(), by bisection
    for (unsigned m = 0; m < f.max_finite; ++m)
      middles.push_back((value_of(f, m) + value_of(f, m + 1)) / 2 * static_cast<double>(scale));
    for (unsigned bits = 0; bits < 65536; ++bits) {
      const Bf16 x{static_cast<std::uint16_t>(bits)};
      const unsigned code = stored_form<T>(x, scale).bits;
      const unsigned sign = (bits >> 15) << 7;
      if ((bits & 0x7FFFU) > 0x7F80U) {
        ASSERT_GE(code & 0x7FU, f.nan_from) << "a NaN must stay one: " << bits;
        ASSERT_EQ(code & 0x80U, sign);
        continue;
      }
      unsigned want = f.max_finite;
      if ((bits & 0x7FFFU) < 0x7F80U) {
        const double magnitude = std::abs(value_of_bf16(x.bits));
        const auto above = std::lower_bound(middles.begin(), middles.end(), magnitude);
        want = static_cast<unsigned>(above - middles.begin());
        if (above != middles.end() && *above == magnitude && want % 2 == 1) ++want;
      }
      ASSERT_EQ(code, want | sign) << "bf16 bits " << bits << ", scale " << scale;
    }
  }
}

TEST(Fp8Cast, EveryBf16ToE4m3IsTheNearestNumber) { check_every_bf16<E4m3>(kE4m3); }
TEST(Fp8Cast, EveryBf16ToE5m2IsTheNearestNumber) { check_every_bf16<E5m2>(kE5m2); }

TEST(Fp8Cast, TheSearchByBisectionIsTheSearchByCounting) {
  for (const double x : {0.0, 1e-3, 0.0009765625, 0.3, 17.0, 18.0, 447.0, 1e9}) {
    EXPECT_EQ(nearest(kE4m3, x, 1.0), encode<E4m3>(x).bits);
    EXPECT_EQ(nearest(kE5m2, x, 1.0), encode<E5m2>(x).bits);
  }
}

template <class T>
void check_every_code(const Format& f, unsigned codes, bool has_infinity) {
  for (unsigned code = 0; code < codes; ++code) {
    T stored{};
    stored.bits = static_cast<decltype(stored.bits)>(code);
    const float value = to_float(stored);
    const unsigned magnitude = code % (codes / 2);
    ASSERT_EQ(std::signbit(value), code >= codes / 2);
    if (magnitude >= f.nan_from) {
      ASSERT_TRUE(std::isnan(value)) << code;
    } else if (has_infinity && magnitude == f.max_finite + 1) {
      ASSERT_TRUE(std::isinf(value)) << code;
    } else {
      ASSERT_EQ(static_cast<double>(std::abs(value)), value_of(f, magnitude)) << code;
      ASSERT_EQ(encode<T>(static_cast<double>(value)).bits, code);
    }
  }
}

TEST(Decode, EveryCodeIsItsExactValueAndComesBack) {
  check_every_code<E4m3>(kE4m3, 256, false);
  check_every_code<E5m2>(kE5m2, 256, true);
  check_every_code<Fp16>(kFp16, 65536, true);
}

TEST(Decode, EveryBf16ComesBack) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const Bf16 stored{static_cast<std::uint16_t>(bits)};
    const unsigned back = bf16_from_float(to_float(stored)).bits;
    const bool nan = (bits & 0x7FFFU) > 0x7F80U;
    ASSERT_EQ(back, nan ? bits | 0x40U : bits);
  }
}

TEST(Encode, Bf16RoundsToNearestEven) {
  EXPECT_EQ(bf16_from_float(1.00390625F).bits, 0x3F80);  // a tie falls to the even neighbour below
  EXPECT_EQ(bf16_from_float(1.01171875F).bits, 0x3F82);  // and to the one above
  EXPECT_EQ(bf16_from_float(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_EQ(encode<Fp16>(65520.0).bits, 0x7C00);
  EXPECT_EQ(encode<Fp16>(65519.0).bits, 0x7BFF);
  EXPECT_EQ(encode<E4m3>(std::numeric_limits<double>::infinity()).bits, 0x7E);
  EXPECT_EQ(encode<E5m2>(-std::numeric_limits<double>::infinity()).bits, 0xFB);
}

}  // namespace
}  // namespace kvpool::kernels
