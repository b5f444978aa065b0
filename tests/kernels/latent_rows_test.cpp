// The 656-byte rows of latent attention: exact bytes, canaries, refusals, and attention over what comes out of them.
#include "kvpool/kernels/latent_rows.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/kernels/attention_case.hpp"

namespace kvpool::kernels::test {
namespace {

constexpr std::int64_t kDim = kLatentDim + kLatentRopeDim;

std::vector<float> random_rows(std::int64_t tokens, std::int64_t dim, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  std::vector<float> values(static_cast<std::size_t>(tokens * dim));
  for (float& value : values) value = normal(rng);
  return values;
}

struct Pool {
  explicit Pool(std::int64_t page_size, std::int64_t num_pages = 4)
      : bytes(static_cast<std::size_t>(num_pages * page_size * 700), 0xA5) {
    pages = {reinterpret_cast<std::byte*>(bytes.data()), num_pages, page_size, page_size * 700, 700};
  }
  std::vector<unsigned char> bytes;
  LatentPages pages;
};

Result<std::int64_t> append_floats(const LatentPages& pages, const std::vector<float>& latent,
                                   const std::vector<float>& rope, const std::vector<std::int64_t>& slots) {
  return append_latent(pages, {latent.data(), DType::float32, kLatentDim, 0},
                       {rope.data(), DType::float32, kLatentRopeDim, 0}, slots);
}

TEST(LatentRows, HoldWhatTheFormatSaysAndNothingElseChanges) {
  Pool pool(4);
  const std::vector<float> latent = random_rows(3, kLatentDim, 1);
  const std::vector<float> rope = random_rows(3, kLatentRopeDim, 2);
  const auto outside = append_floats(pool.pages, latent, rope, {5, -1, 16});
  ASSERT_TRUE(outside.ok());
  EXPECT_EQ(*outside, 1);
  const std::size_t row = 5 * 700;
  for (std::size_t i = 0; i < pool.bytes.size(); ++i) {
    if (i < row || i >= row + 656) {
      ASSERT_EQ(pool.bytes[i], 0xA5) << i;
    }
  }
  for (std::size_t g = 0; g < 4; ++g) {
    float largest = 0;
    for (std::size_t i = 0; i < 128; ++i) largest = std::max(largest, std::abs(latent[g * 128 + i]));
    float scale = 0;
    std::memcpy(&scale, pool.bytes.data() + row + 512 + g * 4, 4);
    EXPECT_EQ(scale, largest / 448.0F);
    for (std::size_t i = 0; i < 128; ++i)
      ASSERT_EQ(pool.bytes[row + g * 128 + i], stored_form<E4m3>(latent[g * 128 + i], scale).bits);
  }
  for (std::size_t i = 0; i < 64; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, pool.bytes.data() + row + 528 + 2 * i, 2);
    ASSERT_EQ(bits, stored_form<Bf16>(rope[i], 1.0F).bits);
  }
}

TEST(LatentRows, SurviveZerosInfinitiesAndNan) {
  Pool pool(1, 1);
  std::vector<float> latent(kLatentDim, 0.0F);
  latent[130] = std::numeric_limits<float>::infinity();
  latent[131] = 3.5F;
  latent[256] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(append_floats(pool.pages, latent, std::vector<float>(kLatentRopeDim, 0.0F), {0}).ok());
  std::vector<float> out(kDim);
  const std::int32_t table[] = {0};
  ASSERT_TRUE(expand_latent(pool.pages, table, 1, out.data(), DType::float32).ok());
  EXPECT_EQ(out[0], 0.0F);
  EXPECT_NEAR(out[131], 3.5F, 1e-6F);
  EXPECT_NEAR(out[130], 3.5F, 1e-6F);
  EXPECT_TRUE(std::isnan(out[256]));
  EXPECT_EQ(out[257], 0.0F);
}

TEST(LatentRows, FeedLatentAttentionWithinTheErrorOfTheFormat) {
  for (const std::int64_t page_size : {16, 64}) {
    const std::int32_t len = 100;
    Pool pool(page_size, 8);
    const std::vector<float> latent = random_rows(len, kLatentDim, 3);
    const std::vector<float> rope = random_rows(len, kLatentRopeDim, 4);
    std::vector<std::int32_t> table(8);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(9));
    std::vector<std::int64_t> slots;
    for (std::int64_t j = 0; j < len; ++j)
      slots.push_back(table[static_cast<std::size_t>(j / page_size)] * page_size + j % page_size);
    ASSERT_TRUE(append_floats(pool.pages, latent, rope, slots).ok());
    std::vector<float> rows(static_cast<std::size_t>(len * kDim));
    ASSERT_TRUE(expand_latent(pool.pages, table, len, rows.data(), DType::float32).ok());
    double error = 0;
    double norm = 0;
    for (std::int64_t j = 0; j < len; ++j) {
      for (std::int64_t d = 0; d < kDim; ++d) {
        const float want = d < kLatentDim ? latent[static_cast<std::size_t>(j * kLatentDim + d)]
                                          : rope[static_cast<std::size_t>(j * kLatentRopeDim + d - kLatentDim)];
        const auto off = static_cast<double>(rows[static_cast<std::size_t>(j * kDim + d)] - want);
        error += off * off;
        norm += static_cast<double>(want) * static_cast<double>(want);
      }
    }
    EXPECT_LE(std::sqrt(error / norm), 0.04);  // three bits of mantissa: at most 1/16 a number
    EXPECT_GT(error, 0);

    AttentionProblem problem{16, 1, kDim, kLatentDim, len, 0, 0};
    AttentionArgs args;
    args.kv = contiguous_kv_view({DType::float32, 1, len, 1, kDim, kLatentDim}, CacheLayout::nhd, rows.data(), nullptr);
    args.kv.v = args.kv.k;
    const std::int32_t first[] = {0};
    args.table = {first, 1, 1};
    const std::vector<float> q = random_rows(16, kDim, 5);
    args.q = dense_queries(q.data(), DType::float32, 16, kDim);
    args.rules.scale = 0.02F;
    std::vector<float> got(16 * kLatentDim);
    std::vector<float> want(16 * kLatentDim);
    const std::int32_t lens[] = {len};
    args.out = dense_output(got.data(), DType::float32, 16, kLatentDim);
    ASSERT_TRUE(paged_attention(problem, lens, {}, args).ok());
    args.out = dense_output(want.data(), DType::float32, 16, kLatentDim);
    ASSERT_TRUE(paged_attention(problem, lens, {}, args, kReference).ok());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5F);
  }
}

TEST(LatentRows, RefusalsComeBeforeAnyByteChanges) {
  Pool pool(4);
  const std::vector<unsigned char> before = pool.bytes;
  const std::vector<float> latent(kLatentDim, 1.0F);
  const std::vector<float> rope(kLatentRopeDim, 1.0F);
  LatentPages narrow = pool.pages;
  narrow.token_stride = 655;
  EXPECT_EQ(append_floats(narrow, latent, rope, {0}).error().code, ErrorCode::invalid_argument);
  LatentPages overlapping = pool.pages;
  overlapping.page_stride = 700;
  EXPECT_EQ(append_floats(overlapping, latent, rope, {0}).error().code, ErrorCode::invalid_argument);
  const std::int64_t slot[] = {0};
  EXPECT_EQ(append_latent(pool.pages, {latent.data(), DType::fp8_e4m3, kLatentDim, 0},
                          {rope.data(), DType::float32, kLatentRopeDim, 0}, slot)
                .error()
                .code,
            ErrorCode::unsupported);
  std::vector<float> out(kDim * 8);
  const std::int32_t far[] = {4};
  EXPECT_EQ(expand_latent(pool.pages, far, 1, out.data(), DType::float32).error().code, ErrorCode::invalid_argument);
  const std::int32_t one[] = {0};
  EXPECT_EQ(expand_latent(pool.pages, one, 5, out.data(), DType::float32).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(expand_latent(pool.pages, one, 1, out.data(), DType::fp8_e4m3).error().code, ErrorCode::unsupported);
  EXPECT_EQ(pool.bytes, before);
}

}  // namespace
}  // namespace kvpool::kernels::test
