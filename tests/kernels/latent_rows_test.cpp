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

TEST(LatentRows, KeepNumbersWithinTheErrorOfTheFormat) {
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
  }
}

/// A batch over fp8 rows, in pages whose other rows are NaN.
struct LatentBatch {
  LatentBatch(std::int64_t page_size, std::vector<std::int32_t> lengths, std::vector<std::int32_t> queries,
              std::uint32_t order)
      : lens(std::move(lengths)), cu_q{0}, pool(page_size, 40) {
    std::fill(pool.bytes.begin(), pool.bytes.end(), static_cast<unsigned char>(0xFF));
    std::vector<std::int32_t> free(40);
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), std::mt19937(order));
    table.assign(lens.size() * kColumns, std::numeric_limits<std::int32_t>::min());
    std::size_t next = 0;
    for (std::size_t b = 0; b < lens.size(); ++b) {
      cu_q.push_back(cu_q.back() + (queries.empty() ? 1 : queries[b]));
      std::vector<std::int64_t> slots;
      for (std::int64_t j = 0; j < lens[b]; ++j) {
        std::int32_t& page = table[b * kColumns + static_cast<std::size_t>(j / page_size)];
        if (j % page_size == 0) page = free[next++];
        slots.push_back(page * page_size + j % page_size);
      }
      const auto seed = static_cast<std::uint32_t>(10 + b);
      EXPECT_TRUE(append_floats(pool.pages, random_rows(lens[b], kLatentDim, seed),
                                random_rows(lens[b], kLatentRopeDim, seed + 50), slots)
                      .ok());
    }
    q = random_rows(std::int64_t{cu_q.back()} * kHeads, kDim, 5);
  }

  [[nodiscard]] AttentionProblem problem(std::int64_t window = 0) const {
    return {kHeads, 1, kDim, kLatentDim, pool.pages.page_size, window, 64};
  }
  [[nodiscard]] Status run(const AttentionProblem& problem, const PagedKvView& view, const LogitRules& rules,
                           const ExecOptions& exec, std::vector<float>& out, std::vector<float>& lse) const {
    const auto rows = static_cast<std::size_t>(cu_q.back()) * kHeads;
    out.assign(rows * kLatentDim, -1);
    lse.assign(rows, -1);
    AttentionArgs args;
    args.kv = view;
    args.table = {table.data(), kColumns, kColumns};
    args.q = dense_queries(q.data(), DType::float32, kHeads, kDim);
    args.rules = rules;
    args.rules.scale = 0.02F;
    args.out = dense_output(out.data(), DType::float32, kHeads, kLatentDim);
    args.lse = lse.data();
    return paged_attention(problem, lens, cu_q, args, exec);
  }

  static constexpr std::int64_t kHeads = 16;
  static constexpr std::int64_t kColumns = 20;
  std::vector<std::int32_t> lens;
  std::vector<std::int32_t> cu_q;
  std::vector<std::int32_t> table;
  std::vector<float> q;
  Pool pool;
};

/// Largest relative L2 error of a row.
double worst_row(const std::vector<float>& got, const std::vector<float>& want) {
  double worst = 0;
  for (std::size_t at = 0; at < got.size(); at += kLatentDim) {
    double error = 0;
    double norm = 0;
    for (std::size_t i = at; i < at + kLatentDim; ++i) {
      const double off = static_cast<double>(got[i]) - static_cast<double>(want[i]);
      error += off * off;
      norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    }
    if (!(error == 0)) worst = std::max(worst, std::sqrt(error / norm));
    if (std::isnan(error)) return std::numeric_limits<double>::infinity();
  }
  return worst;
}

class LatentOnTier : public testing::TestWithParam<CpuTier> {
 protected:
  [[nodiscard]] static ExecOptions exec(int threads = 1) { return {Backend::cpu, GetParam(), threads, 0, nullptr}; }
};
INSTANTIATE_TEST_SUITE_P(Latent, LatentOnTier, testing::ValuesIn(available_tiers()),
                         [](const auto& param) { return std::string(to_string(param.param)); });

TEST_P(LatentOnTier, AttentionReadsFp8RowsInPlace) {
  const std::vector<float> slopes(16, 0.03F);
  const std::vector<float> sinks(16, 0.7F);
  for (const std::int64_t page_size : {16, 64}) {
    for (const bool prefill : {false, true}) {
      for (const bool rules_on : {false, true}) {
        const std::vector<std::int32_t> queries = {1, 9, 0, 33, 5};
        const LatentBatch batch(page_size, {1, 130, 0, 63, 200}, prefill ? queries : std::vector<std::int32_t>{}, 9);
        LogitRules rules;
        if (rules_on) {
          rules.alibi_slopes = slopes;
          rules.sinks = sinks;
          rules.soft_cap = 2;
        }
        const AttentionProblem problem = batch.problem(rules_on ? 50 : 0);
        const PagedKvView view = latent_view(batch.pool.pages);
        std::vector<float> want, want_lse, got, got_lse;
        ASSERT_TRUE(batch.run(problem, view, rules, kReference, want, want_lse).ok());
        ASSERT_TRUE(batch.run(problem, view, rules, exec(), got, got_lse).ok());
        EXPECT_LE(worst_row(got, want), 1e-5) << "page " << page_size;
        for (std::size_t i = 0; i < got_lse.size(); ++i)
          EXPECT_TRUE(got_lse[i] == want_lse[i] || std::abs(got_lse[i] - want_lse[i]) <= 1e-5F) << i;
      }
    }
  }
}

TEST_P(LatentOnTier, ThreadsAndPagesChangeNoBitOfFp8Rows) {
  const LatentBatch batch(16, {1, 200, 90}, {}, 9);
  std::vector<float> alone, lse, other, other_lse;
  ASSERT_TRUE(batch.run(batch.problem(), latent_view(batch.pool.pages), {}, exec(), alone, lse).ok());
  ASSERT_TRUE(batch.run(batch.problem(), latent_view(batch.pool.pages), {}, exec(5), other, other_lse).ok());
  EXPECT_TRUE(alone == other && lse == other_lse);
  const LatentBatch moved(16, {1, 200, 90}, {}, 77);
  ASSERT_TRUE(moved.run(moved.problem(), latent_view(moved.pool.pages), {}, exec(), other, other_lse).ok());
  EXPECT_TRUE(alone == other && lse == other_lse);
}

/// The reference on rows in place is the reference on their expanded form.
TEST(LatentRows, TheReferenceReadsWhatExpansionGives) {
  const LatentBatch batch(16, {100}, {}, 3);
  std::vector<float> rows(100 * kDim);
  ASSERT_TRUE(expand_latent(batch.pool.pages, std::span(batch.table).first(7), 100, rows.data(), DType::float32).ok());
  LatentBatch dense = batch;
  dense.table[0] = 0;
  PagedKvView view =
      contiguous_kv_view({DType::float32, 1, 100, 1, kDim, kLatentDim}, CacheLayout::nhd, rows.data(), nullptr);
  view.v = view.k;
  AttentionProblem one_page = batch.problem();
  one_page.page_size = 100;
  std::vector<float> want, want_lse, got, got_lse;
  ASSERT_TRUE(dense.run(one_page, view, {}, kReference, want, want_lse).ok());
  ASSERT_TRUE(batch.run(batch.problem(), latent_view(batch.pool.pages), {}, kReference, got, got_lse).ok());
  EXPECT_LE(worst_row(got, want), 1e-6);
}

TEST(LatentRows, TheViewIsForAttentionOnly) {
  const LatentBatch batch(16, {20}, {}, 3);
  const PagedKvView view = latent_view(batch.pool.pages);
  const PagedKvView layers[] = {view};
  const PagePair pairs[] = {{0, 1}};
  EXPECT_EQ(copy_pages(layers, pairs).error().code, ErrorCode::unsupported);
  const std::int64_t slot = 0;
  const NewRows fresh{dense_queries(batch.q.data(), DType::float32, 1, kDim),
                      dense_queries(batch.q.data(), DType::float32, 1, kLatentDim)};
  EXPECT_EQ(append(view, {}, fresh, &slot, 1).error().code, ErrorCode::unsupported);
  PagedKvView narrow = view;
  narrow.k.token_stride = narrow.v.token_stride = 655;
  EXPECT_EQ(validate(narrow).error().code, ErrorCode::unsupported);
  PagedKvView apart = view;
  apart.v.data = batch.pool.pages.data + 8;
  EXPECT_EQ(validate(apart).error().code, ErrorCode::unsupported);
}

/// Pages of fp8 rows are copied as bytes, through a view that says so.
TEST(LatentRows, PagesAreCopiedAsBytes) {
  LatentBatch batch(16, {20}, {}, 3);
  const LatentPages& pages = batch.pool.pages;
  PagedKvView bytes = contiguous_kv_view({DType::fp8_e4m3, pages.num_pages, 16, 1, kLatentRowBytes, 0},
                                         CacheLayout::nhd, pages.data, pages.data);
  bytes.k.page_stride = bytes.v.page_stride = pages.page_stride;
  bytes.k.token_stride = bytes.v.token_stride = pages.token_stride;
  std::vector<float> before, before_lse, after, after_lse;
  ASSERT_TRUE(batch.run(batch.problem(), latent_view(pages), {}, {}, before, before_lse).ok());
  const std::int32_t source = batch.table[0];
  std::int32_t target = 0;
  while (target == source || target == batch.table[1]) ++target;
  const PagedKvView layers[] = {bytes};
  const PagePair pairs[] = {{source, target}};
  ASSERT_TRUE(copy_pages(layers, pairs).ok());
  batch.table[0] = target;
  std::memset(pages.data + source * pages.page_stride, 0xFF, static_cast<std::size_t>(16 * pages.token_stride));
  ASSERT_TRUE(batch.run(batch.problem(), latent_view(pages), {}, {}, after, after_lse).ok());
  EXPECT_EQ(before, after);
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
