// The CPU backend against the double reference: every tier, type, layout, rule and shape, and its promises in bits.
#include <gtest/gtest.h>

#include "tests/kernels/attention_case.hpp"

namespace kvpool::kernels::test {
namespace {

ExecOptions on_tier(CpuTier tier, int threads = 1) { return {Backend::cpu, tier, threads, 0, nullptr}; }
/// Relative error that the result type alone brings in.
double tolerance(DType out) {
  if (out == DType::bfloat16) return 3e-3;
  return out == DType::float16 ? 1e-3 : 1e-5;
}

void expect_close(const AttentionCase& c, CpuTier tier, int threads = 1) {
  const Output want = run_case(c, kReference);
  const Output got = run_case(c, on_tier(tier, threads));
  ASSERT_TRUE(want.status.ok()) << want.status.error().message;
  ASSERT_TRUE(got.status.ok()) << got.status.error().message;
  const Difference d = difference(c, got, want);
  EXPECT_LE(d.rel_l2, tolerance(c.spec.out));
  EXPECT_LE(d.lse, 1e-5);
}

void expect_same_bits(const Output& a, const Output& b) {
  ASSERT_TRUE(a.status.ok() && b.status.ok());
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(0, std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)));
}

class EveryTier : public testing::TestWithParam<CpuTier> {};
INSTANTIATE_TEST_SUITE_P(Cpu, EveryTier, testing::ValuesIn(available_tiers()),
                         [](const auto& param) { return std::string(to_string(param.param)); });

TEST_P(EveryTier, DecodesEveryCacheAndQueryType) {
  for (const DType cache : kCacheTypes) {
    for (const DType query : {DType::float32, DType::float16, DType::bfloat16}) {
      SCOPED_TRACE(std::string(to_string(cache)) + " cache, " + std::string(to_string(query)) + " queries");
      CaseSpec spec;
      spec.cache = cache;
      spec.query = query;
      spec.dim = 128;
      spec.layout = query == DType::float16 ? CacheLayout::hnd : CacheLayout::nhd;
      if (is_fp8(cache)) {
        spec.k_scale = {0.03F};
        spec.v_scale = {0.5F, 0.02F};
      }
      expect_close(AttentionCase(spec), GetParam());
    }
  }
}

TEST_P(EveryTier, WritesEveryResultType) {
  for (const DType out : {DType::float32, DType::float16, DType::bfloat16}) {
    CaseSpec spec;
    spec.out = out;
    expect_close(AttentionCase(spec), GetParam());
  }
}

TEST_P(EveryTier, TakesEveryHeadSize) {
  for (const DType cache : kCacheTypes) {
    for (const std::int64_t dim : {1, 8, 32, 46, 72, 80, 96, 112, 120, 192, 256}) {
      SCOPED_TRACE(std::string(to_string(cache)) + " head size " + std::to_string(dim));
      CaseSpec spec;
      spec.cache = cache;
      spec.query = DType::bfloat16;
      spec.dim = dim;
      spec.dim_v = dim == 96 ? 33 : 0;
      spec.seq_lens = {5, 32, 40};
      expect_close(AttentionCase(spec), GetParam());
    }
  }
}

TEST_P(EveryTier, TakesEveryPageSizeAndGroup) {
  for (const std::int64_t page : {1, 2, 3, 8, 16, 32, 64, 128}) {
    for (const std::int64_t group : {1, 2, 3, 4, 5, 8, 70}) {
      SCOPED_TRACE("page " + std::to_string(page) + ", group " + std::to_string(group));
      CaseSpec spec;
      spec.page_size = page;
      spec.group = group;
      spec.kv_heads = group > 8 ? 1 : 2;
      spec.dim = 32;
      spec.seq_lens = {1, 7, 129, 300};
      expect_close(AttentionCase(spec), GetParam());
    }
  }
}

TEST_P(EveryTier, FollowsEveryLogitRule) {
  for (int rules = 0; rules < 16; ++rules) {
    SCOPED_TRACE("rules " + std::to_string(rules));
    CaseSpec spec;
    spec.seq_lens = {1, 40, 200, 0, 333};
    spec.soft_cap = (rules & 1) != 0 ? 1.5F : 0;
    spec.alibi = (rules & 2) != 0;
    spec.sinks = (rules & 4) != 0;
    spec.window = (rules & 8) != 0 ? 37 : 0;
    spec.scale = rules % 3 == 0 ? std::optional<float>(0.3F) : std::nullopt;
    expect_close(AttentionCase(spec), GetParam());
    spec.q_lens = {1, 40, 9, 0, 100};
    expect_close(AttentionCase(spec), GetParam());
  }
}

TEST_P(EveryTier, PrefillsWholeAndInChunks) {
  for (const DType cache : {DType::float32, DType::bfloat16, DType::fp8_e4m3}) {
    CaseSpec spec;
    spec.cache = cache;
    spec.query = cache == DType::float32 ? DType::float32 : DType::bfloat16;
    spec.page_size = 8;
    spec.seq_lens = {200, 1, 77, 300, 5};
    spec.q_lens = {200, 1, 30, 1, 0};
    spec.fixed_split = 64;
    expect_close(AttentionCase(spec), GetParam());
  }
}

TEST_P(EveryTier, LatentAttentionReadsValuesFromTheKeyRows) {
  for (const std::int64_t page : {16, 64}) {
    CaseSpec spec = latent_spec(page);
    spec.seq_lens = {1, 130, 63};
    spec.scale = 0.07F;
    expect_close(AttentionCase(spec), GetParam());
  }
}

TEST_P(EveryTier, ThreadsPagesLayoutAndTableTailChangeNoBit) {
  CaseSpec spec;
  spec.cache = DType::bfloat16;
  spec.query = DType::bfloat16;
  spec.kv_heads = 1;
  spec.dim = 128;
  spec.seq_lens = {3000, 17};
  spec.fixed_split = 128;
  AttentionCase c(spec);
  const Output alone = run_case(c, on_tier(GetParam(), 1));
  expect_same_bits(alone, run_case(c, on_tier(GetParam(), 2)));
  expect_same_bits(alone, run_case(c, on_tier(GetParam(), 7)));
  c.place_pages(99);
  expect_same_bits(alone, run_case(c, on_tier(GetParam(), 1)));
  c.fill_unused_table_entries(0x7FFFFFFF);
  expect_same_bits(alone, run_case(c, on_tier(GetParam(), 1)));
  spec.layout = CacheLayout::hnd;
  expect_same_bits(alone, run_case(AttentionCase(spec), on_tier(GetParam(), 1)));
  spec.fixed_split = 0;
  const AttentionCase free_split(spec);
  expect_same_bits(run_case(free_split, on_tier(GetParam(), 1)), run_case(free_split, on_tier(GetParam(), 5)));
}

TEST_P(EveryTier, HeadsThatWalkThePagesTogetherGetTheBitsOfHeadsAlone) {
  for (const DType cache : kCacheTypes) {
    for (const std::int64_t heads : {2, 3, 8}) {
      SCOPED_TRACE(std::string(to_string(cache)) + " cache, " + std::to_string(heads) + " heads");
      CaseSpec spec;
      spec.cache = cache;
      spec.query = DType::bfloat16;
      spec.kv_heads = heads;
      spec.group = 3;
      spec.page_size = 8;
      spec.seq_lens = {1, 700, 0, 129, 1100};
      spec.window = heads == 3 ? 90 : 0;
      spec.alibi = heads == 3;  // under a window, where distances stay small
      if (is_fp8(cache)) {
        for (std::int64_t h = 0; h < heads; ++h) spec.k_scale.push_back(0.05F + 0.01F * static_cast<float>(h));
      }
      const AttentionCase side_by_side(spec);
      expect_close(side_by_side, GetParam());
      spec.layout = CacheLayout::hnd;
      const AttentionCase apart(spec);
      const Output alone = run_case(apart, on_tier(GetParam()));
      expect_same_bits(alone, run_case(side_by_side, on_tier(GetParam())));
      expect_same_bits(alone, run_case(side_by_side, on_tier(GetParam(), 2)));
      expect_same_bits(alone, run_case(side_by_side, on_tier(GetParam(), 16)));
    }
  }
}

/// One sequence of a case, run alone: pool, rows and queries are those of the case.
Output run_alone(const AttentionCase& c, std::size_t b, std::int64_t first_query, std::int64_t len,
                 const ExecOptions& exec) {
  const auto heads = static_cast<std::size_t>(c.spec.kv_heads * c.spec.group);
  Output output;
  output.bytes.assign(heads * static_cast<std::size_t>(c.dim_v * element_bytes(c.spec.out)), 0xFF);
  output.lse.assign(heads, 0);
  AttentionArgs args = c.args(output.bytes.data(), output.lse.data());
  args.table.entries += static_cast<std::int64_t>(b) * c.columns;
  args.q.data = static_cast<const std::byte*>(args.q.data) +
                (c.cu_q[b] + first_query) * args.q.token_stride * element_bytes(c.spec.query);
  const std::int32_t lens[] = {static_cast<std::int32_t>(len)};
  output.status = paged_attention(c.problem(), lens, {}, args, exec);
  return output;
}

TEST_P(EveryTier, WithAFixedSplitPrefillAndDecodeOfATokenAgreeInEveryBit) {
  for (const std::int64_t window : {0, 50}) {
    for (const std::int64_t group : {1, 3, 4}) {
      CaseSpec spec;
      spec.window = window;
      spec.group = group;
      spec.fixed_split = 48;
      spec.seq_lens = {150, 33, 64};
      spec.q_lens = {150, 20, 1};
      spec.cache = DType::bfloat16;
      const AttentionCase c(spec);
      const Output batch = run_case(c, on_tier(GetParam()));
      ASSERT_TRUE(batch.status.ok());
      for (std::size_t b = 0; b < spec.seq_lens.size(); ++b) {
        for (std::int64_t i = 0; i < spec.q_lens[b]; i += 7) {
          const Output one = run_alone(c, b, i, spec.seq_lens[b] - spec.q_lens[b] + i + 1, on_tier(GetParam()));
          ASSERT_TRUE(one.status.ok());
          const auto row = static_cast<std::size_t>(c.cu_q[b] + i) * one.lse.size();
          EXPECT_EQ(0, std::memcmp(one.lse.data(), batch.lse.data() + row, one.lse.size() * sizeof(float)));
          EXPECT_EQ(0, std::memcmp(one.bytes.data(),
                                   batch.bytes.data() + row * static_cast<std::size_t>(c.dim_v) * sizeof(float),
                                   one.bytes.size()))
              << "sequence " << b << " query " << i;
        }
      }
    }
  }
}

TEST_P(EveryTier, ARankWithSomeOfTheHeadsGetsTheSameBits) {
  CaseSpec spec;
  spec.kv_heads = 4;
  spec.group = 4;
  spec.seq_lens = {100, 5, 37};
  spec.fixed_split = 32;
  const AttentionCase c(spec);
  const Output all = run_case(c, on_tier(GetParam()));
  const auto dim = static_cast<std::size_t>(spec.dim);
  for (const std::int64_t ranks : {2, 4, 8}) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t kv_heads = std::max<std::int64_t>(1, spec.kv_heads / ranks);
      const std::int64_t heads = spec.kv_heads * spec.group / ranks;
      const std::int64_t first = rank * heads;
      std::vector<float> out(static_cast<std::size_t>(3 * heads) * dim);
      AttentionProblem problem = c.problem();
      problem.num_kv_heads = kv_heads;
      problem.num_query_heads = heads;
      AttentionArgs args = c.args(nullptr, nullptr);
      args.kv = head_slice(c.view, first / spec.group, kv_heads);
      args.q.data = static_cast<const float*>(args.q.data) + first * spec.dim;
      args.out = dense_output(out.data(), DType::float32, heads, spec.dim);
      ASSERT_TRUE(paged_attention(problem, spec.seq_lens, {}, args, on_tier(GetParam())).ok());
      for (std::size_t b = 0; b < 3; ++b) {
        const float* want =
            reinterpret_cast<const float*>(all.bytes.data()) + (b * 16 + static_cast<std::size_t>(first)) * dim;
        EXPECT_EQ(0, std::memcmp(want, out.data() + b * static_cast<std::size_t>(heads) * dim,
                                 static_cast<std::size_t>(heads) * dim * sizeof(float)));
      }
    }
  }
}

TEST_P(EveryTier, SplitCountChangesLittle) {
  CaseSpec spec;
  spec.seq_lens = {1500};
  const Output whole = run_case(AttentionCase(spec), on_tier(GetParam()));
  for (const std::int64_t split : {16, 100, 512}) {
    spec.fixed_split = split;
    const AttentionCase c(spec);
    const Difference d = difference(c, run_case(c, on_tier(GetParam())), whole);
    EXPECT_LE(d.rel_l2, 1e-6);
  }
}

}  // namespace
}  // namespace kvpool::kernels::test
