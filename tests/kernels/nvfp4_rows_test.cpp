// NVFP4 rows: every code, the nearest number by exhaustive search, groups that are extreme, canaries, refusals.
#include "kvpool/kernels/nvfp4_rows.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/attention_case.hpp"

namespace kvpool::kernels::test {
namespace {

constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

struct Packed {
  explicit Packed(std::int64_t dim, std::int64_t count = 1, float tensor_scale = 1)
      : bytes(static_cast<std::size_t>(count * (nvfp4_row_bytes(dim) + 5)), 0xA5),
        rows{reinterpret_cast<std::byte*>(bytes.data()), dim, nvfp4_row_bytes(dim) + 5, tensor_scale} {}
  std::vector<unsigned char> bytes;
  Nvfp4Rows rows;
};

std::vector<float> unpacked(const Packed& packed, std::int64_t count = 1) {
  std::vector<float> out(static_cast<std::size_t>(count * packed.rows.dim));
  EXPECT_TRUE(unpack_nvfp4(packed.rows, count, out.data(), DType::float32).ok());
  return out;
}

QueryRows rows_of(const std::vector<float>& values, std::int64_t dim) {
  return dense_queries(values.data(), DType::float32, 1, dim);
}

TEST(Nvfp4Rows, EveryCodeIsItsValueTimesBothScales) {
  Packed packed(16, 1, 0.25F);
  for (std::size_t i = 0; i < 8; ++i) packed.bytes[i] = static_cast<unsigned char>(2 * i | (2 * i + 1) << 4);
  for (unsigned scale = 0; scale < 256; ++scale) {
    packed.bytes[8] = static_cast<unsigned char>(scale);
    const std::vector<float> got = unpacked(packed);
    const float real_scale = to_float(E4m3{static_cast<std::uint8_t>(scale)});
    for (std::size_t code = 0; code < 16; ++code) {
      if (std::isnan(real_scale)) {
        ASSERT_TRUE(std::isnan(got[code]));
      } else {
        const double sign = code < 8 ? 1 : -1;
        ASSERT_EQ(static_cast<double>(got[code]), sign * kMagnitudes[code % 8] * static_cast<double>(real_scale) / 4);
      }
    }
  }
}

TEST(Nvfp4Rows, EveryNumberBecomesTheNearestOneOfItsGroup) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  constexpr std::int64_t kRows = 50;
  constexpr std::int64_t kDim = 64;
  std::vector<float> values(kRows * kDim);
  for (float& value : values) value = normal(rng);
  for (const float tensor_scale : {1.0F, 0.01F, 37.5F}) {
    Packed packed(kDim, kRows, tensor_scale);
    ASSERT_TRUE(pack_nvfp4(rows_of(values, kDim), kRows, packed.rows).ok());
    const std::vector<float> got = unpacked(packed, kRows);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t row = i / kDim;
      const std::size_t scale_at = row * static_cast<std::size_t>(packed.rows.row_stride) + kDim / 2 + i % kDim / 16;
      const double unit =
          static_cast<double>(to_float(E4m3{packed.bytes[scale_at]})) * static_cast<double>(tensor_scale);
      double best = std::numeric_limits<double>::infinity();
      for (const double magnitude : kMagnitudes)
        best = std::min(best, std::abs(std::abs(static_cast<double>(values[i])) - magnitude * unit));
      ASSERT_NEAR(std::abs(static_cast<double>(got[i]) - static_cast<double>(values[i])), best, 1e-6 * unit) << i;
    }
    double largest = 0;
    for (std::size_t i = 0; i < 16; ++i) largest = std::max(largest, std::abs(static_cast<double>(values[i])));
    const double unit = static_cast<double>(to_float(E4m3{packed.bytes[kDim / 2]})) * static_cast<double>(tensor_scale);
    EXPECT_NEAR(unit, largest / 6, largest / 6 / 16) << "an E4M3 number is within a sixteenth";
    for (std::size_t row = 0; row < kRows; ++row)
      for (std::size_t i = 0; i < 5; ++i)
        ASSERT_EQ(packed.bytes[(row + 1) * static_cast<std::size_t>(packed.rows.row_stride) - 1 - i], 0xA5);
  }
}

TEST(Nvfp4Rows, TiesGoToTheEvenCode) {
  std::vector<float> values = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5, 6, -0.25F, -5, 0, -0.0F, 0, 0, 0, 0};
  Packed packed(16);
  ASSERT_TRUE(pack_nvfp4(rows_of(values, 16), 1, packed.rows).ok());
  const std::vector<float> want = {0, 1, 1, 2, 2, 4, 4, 6, 0, -4, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(unpacked(packed), want);
}

TEST(Nvfp4Rows, ZerosInfinitiesNanAndTinyNumbers) {
  std::vector<float> values(64, 0.0F);
  values[16] = std::numeric_limits<float>::infinity();
  values[17] = -3;
  values[32] = std::numeric_limits<float>::quiet_NaN();
  values[48] = 1e-9F;
  Packed packed(64);
  ASSERT_TRUE(pack_nvfp4(rows_of(values, 64), 1, packed.rows).ok());
  const std::vector<float> got = unpacked(packed);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(got[i], 0.0F);
  EXPECT_EQ(got[16], 3.0F);
  EXPECT_EQ(got[17], -3.0F);
  for (std::size_t i = 32; i < 48; ++i) EXPECT_TRUE(std::isnan(got[i]));
  EXPECT_EQ(packed.bytes[35], 1) << "a group of tiny numbers has the smallest scale, not 0";
  EXPECT_EQ(got[48], 0.0F);
}

TEST(Nvfp4Rows, TakeAndGiveEveryComputeType) {
  std::vector<float> values(32);
  for (std::size_t i = 0; i < 32; ++i) values[i] = static_cast<float>(kMagnitudes[i % 8]);
  for (const DType type : {DType::float32, DType::float16, DType::bfloat16}) {
    const auto bytes = encode_rows(values, type);
    Packed packed(32);
    ASSERT_TRUE(pack_nvfp4(dense_queries(bytes.data(), type, 1, 32), 1, packed.rows).ok());
    std::vector<unsigned char> out(bytes.size());
    ASSERT_TRUE(unpack_nvfp4(packed.rows, 1, out.data(), type).ok());
    EXPECT_EQ(out, bytes);
  }
}

TEST(Nvfp4Rows, RefusalsComeBeforeAnyByteChanges) {
  const std::vector<float> values(32, 1.0F);
  const auto refused = [&](const char* word, ErrorCode code, auto change) {
    Packed packed(32);
    const auto before = packed.bytes;
    QueryRows rows = rows_of(values, 32);
    change(packed.rows, rows);
    const Status status = pack_nvfp4(rows, 1, packed.rows);
    ASSERT_FALSE(status.ok()) << word;
    EXPECT_EQ(status.error().code, code);
    EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().message;
    EXPECT_EQ(packed.bytes, before);
  };
  const ErrorCode bad = ErrorCode::invalid_argument;
  refused("dim is 24", bad, [](auto& packed, auto&) { packed.dim = 24; });
  refused("row_stride", bad, [](auto& packed, auto&) { packed.row_stride = 17; });
  for (const float scale : {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::nanf("")})
    refused("tensor_scale", bad, [&](auto& packed, auto&) { packed.tensor_scale = scale; });
  refused("memory", bad, [](auto&, auto& rows) { rows.data = nullptr; });
  refused("fp8_e4m3", ErrorCode::unsupported, [](auto&, auto& rows) { rows.dtype = DType::fp8_e4m3; });
}

}  // namespace
}  // namespace kvpool::kernels::test
