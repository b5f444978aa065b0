// Failures of attention kernels reported from the field (F103 to F113), each as the scenario in which it was seen.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/kernels/attention_case.hpp"

namespace kvpool::kernels::test {
namespace {

ExecOptions on_tier(CpuTier tier) { return {Backend::cpu, tier, 1, 0, nullptr}; }

void expect_close_on_every_tier(const AttentionCase& c) {
  const Output want = run_case(c, kReference);
  ASSERT_TRUE(want.status.ok());
  for (const CpuTier tier : available_tiers()) {
    const Output got = run_case(c, on_tier(tier));
    ASSERT_TRUE(got.status.ok());
    EXPECT_LE(difference(c, got, want).rel_l2, 1e-5) << to_string(tier);
  }
}

TEST(KernelField, F103_OffsetsHave64Bits) {
  const auto offset = [](std::int64_t block, std::int64_t stride) {
    return row_offset({nullptr, stride, 0, 0}, block, 0, 0);
  };
  EXPECT_EQ(offset(2066, 1039680), 2147978880);
  EXPECT_EQ(offset(7767, 276480), 2147420160);
  EXPECT_EQ(offset(7768, 276480), 2147696640);
  EXPECT_EQ(offset(1048576, 16384), 17179869184);
  EXPECT_EQ(offset(2147483647, 1048576), 2147483647LL * 1048576LL);
}

TEST(KernelField, F104_NanInUnusedSlotsStaysOut) {
  for (const DType cache : {DType::float16, DType::bfloat16, DType::fp8_e4m3}) {
    for (const std::int64_t dim : {64, 128}) {
      CaseSpec spec;
      spec.cache = cache;
      spec.dim = dim;
      expect_close_on_every_tier(AttentionCase(spec));
    }
  }
}

/// Mean over the last min(len, 4) positions: equal keys and one-hot values, head size 16.
void expect_window_mean(const Output& got, std::size_t row, std::int64_t position) {
  const std::int64_t first = std::max<std::int64_t>(0, position - 3);
  for (std::int64_t d = 0; d < 16; ++d) {
    const double want = d >= first && d <= position ? 1.0 / static_cast<double>(position - first + 1) : 0;
    EXPECT_NEAR(static_cast<double>(got.at(row * 16 + static_cast<std::size_t>(d), DType::float32)), want, 1e-6)
        << "position " << position;
  }
}

TEST(KernelField, F105_AWindowCountsTheCurrentToken) {
  CaseSpec spec;
  spec.page_size = 2;
  spec.window = 4;
  spec.kv_heads = 1;
  spec.group = 1;
  spec.dim = 16;
  for (std::int32_t len = 1; len <= 12; ++len) {
    for (const bool prefill : {false, true}) {
      spec.seq_lens = {len};
      spec.q_lens = prefill ? std::vector<std::int32_t>{len} : std::vector<std::int32_t>{};
      AttentionCase c(spec);
      for (std::int64_t j = 0; j < len; ++j) {
        const std::int32_t page = c.table[static_cast<std::size_t>(j / 2)];
        for (std::int64_t d = 0; d < 16; ++d) {
          const float key = 0.5F;
          const float value = d == j ? 1.0F : 0.0F;
          std::memcpy(c.k_pool.data() + (row_offset(c.view.k, page, j % 2, 0) + d) * 4, &key, 4);
          std::memcpy(c.v_pool.data() + (row_offset(c.view.v, page, j % 2, 0) + d) * 4, &value, 4);
        }
      }
      for (const CpuTier tier : available_tiers()) {
        const Output got = run_case(c, on_tier(tier));
        ASSERT_TRUE(got.status.ok());
        const std::int64_t rows = c.num_tokens();
        for (std::int64_t i = 0; i < rows; ++i) expect_window_mean(got, static_cast<std::size_t>(i), len - rows + i);
      }
    }
  }
}

TEST(KernelField, F106_PagesBeforeTheWindowMayBeAnything) {
  CaseSpec spec;
  spec.seq_lens = {32768};
  spec.window = 512;
  spec.kv_heads = 1;
  spec.group = 1;
  spec.cache = DType::bfloat16;
  AttentionCase c(spec);
  for (const CpuTier tier : available_tiers()) {
    AttentionCase poisoned = c;
    poisoned.view.k.data = poisoned.k_pool.data();
    poisoned.view.v.data = poisoned.v_pool.data();
    const Output want = run_case(poisoned, on_tier(tier));
    const std::size_t page_bytes = poisoned.k_pool.size() / static_cast<std::size_t>(c.num_pages);
    for (std::size_t i = 0; i < (32768 - 512) / 16; ++i) {
      const auto page = static_cast<std::size_t>(poisoned.table[i]);
      std::memset(poisoned.k_pool.data() + page * page_bytes, 0xFF, page_bytes);
      std::memset(poisoned.v_pool.data() + page * page_bytes, 0xFF, page_bytes);
      poisoned.table[i] = -1;  // released: not even an id
    }
    const Output got = run_case(poisoned, on_tier(tier));
    ASSERT_TRUE(got.status.ok()) << got.status.error().message;
    EXPECT_EQ(got.bytes, want.bytes);
  }
}

TEST(KernelField, F106_TheWorkIsThatOfTheWindow) {
  AttentionProblem problem;
  problem.num_query_heads = problem.num_kv_heads = 1;
  problem.head_dim = problem.head_dim_v = 64;
  problem.sliding_window = 512;
  problem.fixed_split = 512;
  const ExecOptions exec{Backend::cpu, CpuTier::generic, 64, 0, nullptr};
  for (const std::int32_t len : {4096, 8192, 32768}) {
    const std::int32_t lens[] = {len};
    const auto plan = AttentionPlan::make(problem, lens, {}, exec);
    ASSERT_TRUE(plan.ok());
    EXPECT_LE(plan->num_work_items(), 2) << "512 keys touch at most two splits of 512, at any length";
  }
}

TEST(KernelField, F107_ScalesOutliveThePool) {
  for (const float scale : {0.01F, 0.05F}) {
    CaseSpec spec;
    spec.cache = DType::fp8_e4m3;
    spec.k_scale = {scale};
    spec.v_scale = {scale};
    const Output before = run_case(AttentionCase(spec), on_tier(best_tier()));
    const AttentionCase again(spec);  // the pool is made anew; the scales belong to the caller
    const Output after = run_case(again, on_tier(best_tier()));
    EXPECT_EQ(before.bytes, after.bytes);
    CaseSpec exact = spec;
    exact.cache = DType::float32;
    const Difference d = difference(again, after, run_case(AttentionCase(exact), kReference));
    EXPECT_LE(d.rel_l2, 0.15) << "what three mantissa bits allow; a lost scale would give 10 or more";
  }
}

TEST(KernelField, F108_AnInvalidLastPageLengthIsRefused) {
  const std::int32_t indptr[] = {0, 2};
  const std::int32_t indices[] = {5, 3};
  for (const std::int32_t last : {0, 1, 16, 17}) {
    const std::int32_t lens[] = {last};
    const auto padded = pad_csr({indptr, indices, lens}, 16, 8);
    ASSERT_EQ(padded.ok(), last == 1 || last == 16) << last;
    if (padded.ok()) {
      EXPECT_EQ(padded->seq_lens[0], 16 + last);
    } else {
      EXPECT_NE(padded.error().message.find(std::to_string(last)), std::string::npos);
    }
  }
  CaseSpec spec;
  spec.page_size = 512;
  spec.seq_lens = {700, 512};
  expect_close_on_every_tier(AttentionCase(spec));
}

TEST(KernelField, F108_OtherBrokenCsrArraysAreRefused) {
  const std::int32_t one[] = {1};
  const std::int32_t zero[] = {0};
  const std::int32_t page[] = {7};
  const std::vector<std::int32_t> empty = {0, 0};
  EXPECT_TRUE(pad_csr({empty, {}, zero}, 16, 8).ok());
  EXPECT_FALSE(pad_csr({empty, {}, one}, 16, 8).ok()) << "an empty sequence has no last page";
  const std::vector<std::int32_t> good = {0, 1};
  EXPECT_TRUE(pad_csr({good, page, one}, 16, 8).ok());
  EXPECT_FALSE(pad_csr({good, page, one}, 16, 7).ok()) << "page 7 of a pool of 7";
  EXPECT_FALSE(pad_csr({good, {}, one}, 16, 8).ok()) << "more pages than indices";
  const std::vector<std::int32_t> falling = {0, -1};
  EXPECT_FALSE(pad_csr({falling, page, one}, 16, 8).ok());
  EXPECT_FALSE(pad_csr({{}, {}, {}}, 16, 8).ok());
}

TEST(KernelField, F109_SequencesShorterThanAPage) {
  CaseSpec spec;
  spec.page_size = 2;
  spec.seq_lens = {1, 1};
  AttentionCase c(spec);
  const std::size_t page_bytes = c.k_pool.size() / static_cast<std::size_t>(c.num_pages);
  const auto first = static_cast<std::size_t>(c.table[0]);
  const auto second = static_cast<std::size_t>(c.table[static_cast<std::size_t>(c.columns)]);
  std::memcpy(c.k_pool.data() + second * page_bytes, c.k_pool.data() + first * page_bytes, page_bytes);
  std::memcpy(c.v_pool.data() + second * page_bytes, c.v_pool.data() + first * page_bytes, page_bytes);
  std::copy(c.q.begin(), c.q.begin() + static_cast<std::ptrdiff_t>(c.q.size() / 2),
            c.q.begin() + static_cast<std::ptrdiff_t>(c.q.size() / 2));
  for (const CpuTier tier : available_tiers()) {
    const Output got = run_case(c, on_tier(tier));
    ASSERT_TRUE(got.status.ok());
    const auto half = static_cast<std::ptrdiff_t>(got.bytes.size() / 2);
    EXPECT_TRUE(std::equal(got.bytes.begin(), got.bytes.begin() + half, got.bytes.begin() + half));
  }
  for (const std::vector<std::int32_t>& lens : {std::vector<std::int32_t>{1, 0, 3}, {0}, {}}) {
    spec.seq_lens = lens;
    expect_close_on_every_tier(AttentionCase(spec));
  }
}

TEST(KernelField, F110_OddHeadSizes) {
  for (const std::int64_t dim : {46, 72, 80, 96, 120, 128, 256}) {
    for (const DType cache : {DType::float16, DType::bfloat16, DType::fp8_e4m3}) {
      CaseSpec spec;
      spec.cache = cache;
      spec.dim = dim;
      spec.seq_lens = {32};
      spec.kv_heads = 1;
      expect_close_on_every_tier(AttentionCase(spec));
    }
  }
}

TEST(KernelField, F112_PaddingWritesNothingAndReadsNothing) {
  CaseSpec spec;
  spec.seq_lens = {9, 17, 3, 0, 0, 0, 0, 0};  // three real sequences, a batch padded to eight
  spec.cache = DType::bfloat16;
  AttentionCase c(spec);
  const auto k_before = c.k_pool;
  const auto v_before = c.v_pool;
  const std::vector<float> nan(5 * 2 * 64, std::numeric_limits<float>::quiet_NaN());
  const std::vector<std::int64_t> slots(5, kSkipSlot);
  const QueryRows rows = dense_queries(nan.data(), DType::float32, 2, 64);
  const auto outside = append(c.view, {}, {rows, rows}, slots.data(), 5);
  ASSERT_TRUE(outside.ok());
  EXPECT_EQ(*outside, 0);
  EXPECT_EQ(c.k_pool, k_before);
  EXPECT_EQ(c.v_pool, v_before);
  expect_close_on_every_tier(c);
}

TEST(KernelField, F113_StaleBytesAreNeverRead) {
  for (const DType cache : {DType::fp8_e4m3, DType::fp8_e5m2}) {
    CaseSpec spec;
    spec.cache = cache;
    spec.seq_lens = {1};
    AttentionCase c(spec);  // every byte that the one token does not own: 0xFF here, 0 in the other pool
    AttentionCase clean = c;
    clean.view.k.data = clean.k_pool.data();
    clean.view.v.data = clean.v_pool.data();
    const std::size_t page_bytes = c.k_pool.size() / static_cast<std::size_t>(c.num_pages);
    const auto page = static_cast<std::size_t>(c.table[0]);
    for (std::size_t i = 0; i < c.k_pool.size(); ++i) {
      const bool owned = i / page_bytes == page && i % page_bytes < static_cast<std::size_t>(spec.kv_heads * spec.dim);
      if (owned) continue;
      c.k_pool[i] = c.v_pool[i] = 0xFF;
      clean.k_pool[i] = clean.v_pool[i] = 0;
    }
    for (const CpuTier tier : available_tiers())
      EXPECT_EQ(run_case(c, on_tier(tier)).bytes, run_case(clean, on_tier(tier)).bytes);
  }
}

}  // namespace
}  // namespace kvpool::kernels::test
