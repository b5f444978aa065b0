// The tensor-core kernels, run thread by thread on the CPU, against the double reference.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/kernels/low_precision.hpp"
#include "tests/kernels/simt_attention.hpp"

namespace kvpool::kernels::test {
namespace {

CaseSpec group_of_eight() {
  CaseSpec spec;
  spec.cache = DType::bfloat16;
  spec.query = DType::bfloat16;
  spec.dim = 128;
  spec.kv_heads = 1;
  spec.group = 8;
  spec.seq_lens = {1, 17, kSlow ? 100 : 230};
  spec.fixed_split = 128;
  return spec;
}

void expect_close(const CaseSpec& spec) {
  const AttentionCase c(spec);
  const Output got = run_on_simt(c);
  const Output want = run_case(c, kReference);
  ASSERT_TRUE(got.status.ok()) << got.status.error().message;
  const Difference d = difference(c, got, want);
  EXPECT_LE(d.rel_l2, spec.cache == DType::bfloat16 ? 4e-3 : 6e-4) << "weights have 8 or 11 bits";
  EXPECT_LE(d.lse, 1e-5) << "scores and sums stay in fp32";
}

TEST(SimtMma, DecodesAGroupOfEight) { expect_close(group_of_eight()); }

TEST(SimtMma, FillsSeveralRowBlocksWhenTheGroupIsLarge) {
  CaseSpec spec = group_of_eight();
  spec.group = 21;
  spec.dim = 64;
  spec.seq_lens = {40};
  expect_close(spec);
}

#if !defined(KVPOOL_SIMT_TSAN)  // a switch costs tens of microseconds there
TEST(SimtMma, TakesEveryCacheTypeAndHeadSize) {
  for (const DType cache : {DType::float16, DType::bfloat16, DType::fp8_e4m3, DType::fp8_e5m2}) {
    for (const std::int64_t dim : {64, 72, 120, 128, 192, 256}) {
      SCOPED_TRACE(std::string(to_string(cache)) + " dim " + std::to_string(dim));
      CaseSpec spec = group_of_eight();
      spec.cache = cache;
      spec.dim = dim;
      spec.dim_v = dim == 192 ? 128 : 0;
      spec.layout = CacheLayout::hnd;
      spec.seq_lens = {33, 110};
      if (is_fp8(cache)) spec.k_scale = spec.v_scale = {0.04F};
      expect_close(spec);
    }
  }
}

/// Queries that the product's type cannot hold are taken in two halves, or scaled.
TEST(SimtMma, TakesQueriesOfEveryTypeAndSize) {
  for (const DType cache : {DType::float16, DType::bfloat16, DType::fp8_e4m3}) {
    for (const DType query : {DType::float32, DType::float16, DType::bfloat16}) {
      for (const float scale : {0.09F, 1e-6F}) {
        SCOPED_TRACE(std::string(to_string(cache)) + " query " + std::string(to_string(query)));
        CaseSpec spec = group_of_eight();
        spec.cache = cache;
        spec.query = query;
        spec.dim = 64;
        spec.scale = scale;
        spec.seq_lens = {70};
        AttentionCase c(spec);
        if (scale < 0.01F && query != DType::float16) {  // numbers far beyond the range of fp16
          std::vector<float> large(c.q.size() / static_cast<std::size_t>(element_bytes(query)));
          for (std::size_t i = 0; i < large.size(); ++i) large[i] = 1e6F * std::sin(static_cast<float>(i) * 1.7F);
          c.q = encode_rows(large, query);
        }
        const Output got = run_on_simt(c);
        ASSERT_TRUE(got.status.ok());
        const Difference d = difference(c, got, run_case(c, kReference));
        EXPECT_LE(d.rel_l2, cache == DType::bfloat16 ? 4e-3 : 6e-4);
        EXPECT_LE(d.lse, 3e-5);
      }
    }
  }
}

TEST(SimtMma, FollowsEveryLogitRuleInDecodeAndPrefill) {
  for (int rules = 0; rules < 16; ++rules) {
    SCOPED_TRACE("rules " + std::to_string(rules));
    CaseSpec spec = group_of_eight();
    spec.dim = 64;
    spec.soft_cap = (rules & 1) != 0 ? 3.0F : 0;
    spec.alibi = (rules & 2) != 0;
    spec.sinks = (rules & 4) != 0;
    spec.window = (rules & 8) != 0 ? 37 : 0;
    spec.seq_lens = {5, 100, 0};
    expect_close(spec);
    spec.q_lens = {5, 9, 0};
    spec.group = 3;
    expect_close(spec);
  }
}
#endif

/// The shared part of a cascade: more queries than keys, and every query sees all of them.
TEST(SimtMma, QueriesOfASharedPrefixSeeAllOfIt) {
  CaseSpec spec = group_of_eight();
  spec.dim = 64;
  spec.group = 2;
  spec.causal = false;
  spec.seq_lens = {48, 16};
  spec.q_lens = {9, 20};
  expect_close(spec);
}

TEST(SimtMma, DecodesLatentAttentionOverPagesOf16And64) {
  for (const std::int64_t page : {16, 64}) {
    for (const DType type : {DType::bfloat16, DType::float16}) {
      if (kSlow && (page == 16 || type == DType::float16)) continue;
      CaseSpec spec = latent_spec(page);
      spec.cache = spec.query = type;
      spec.fixed_split = 128;
      spec.seq_lens = kSlow ? std::vector<std::int32_t>{40} : std::vector<std::int32_t>{1, 130};
      expect_close(spec);
    }
  }
}

TEST(SimtMma, TheLargestErrorIsNoMoreThanTwiceThatOfBf16) {
  for (const float soft_cap : {0.0F, 2.0F}) {
    CaseSpec spec = group_of_eight();
    spec.soft_cap = soft_cap;
    spec.seq_lens = {33, kSlow ? 40 : 150};
    const AttentionCase c(spec);
    expect_within_bf16_error(c, run_on_simt(c), run_case(c, kReference), attention_in_bf16(c), soft_cap > 0 ? 3 : 2);
  }
}

TEST(SimtMma, RefusesLatentAttentionItHasNoKernelFor) {
  CaseSpec spec = group_of_eight();
  spec.dim = 576;
  spec.dim_v = 512;
  EXPECT_EQ(run_on_simt(AttentionCase(spec)).status.error().code, ErrorCode::unsupported) << "V rows of their own";
  spec.same_rows = true;
  spec.query = DType::float32;
  EXPECT_NE(run_on_simt(AttentionCase(spec)).status.error().message.find("float32"), std::string::npos);
}

TEST(SimtMma, AFutureNanDoesNotReachEarlierQueries) {
  CaseSpec spec = group_of_eight();
  spec.group = 2;
  expect_future_nan_stays_behind(spec);
}

TEST(SimtMma, SchedulesThreadsAndCopyTimingChangeNoBit) {
  CaseSpec spec = group_of_eight();
  spec.seq_lens = kSlow ? std::vector<std::int32_t>{70} : std::vector<std::int32_t>{17, 200};
  spec.fixed_split = 256;
  expect_same_bits_on_every_schedule(spec);
}

#if !defined(KVPOOL_SIMT_TSAN) && !defined(KVPOOL_SIMT_ASAN)  // their shadow does not like a mapping of 64 GiB
/// Pages more than 2^32 elements apart: every product of an offset needs 64 bits.
TEST(SimtMma, OffsetsPassFourBillionElements) {
  constexpr std::size_t kBytes = std::size_t{64} << 30;
  void* const far = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (far == MAP_FAILED) GTEST_SKIP() << "this system maps no 64 GiB of addresses";
  for (const std::int64_t group : {4, 8}) {
    CaseSpec spec = group_of_eight();
    spec.group = group;
    spec.seq_lens = {20, 5};
    AttentionCase c(spec);
    const Output near = run_on_simt(c);
    const std::int64_t near_stride = c.view.k.page_stride;
    const std::int64_t far_stride = (std::int64_t{1} << 32) + 8;
    ASSERT_LE((c.num_pages * far_stride) * 2, static_cast<std::int64_t>(kBytes));
    for (std::int64_t page = 0; page < c.num_pages; ++page) {
      const auto bytes = static_cast<std::size_t>(near_stride) * 2;
      std::memcpy(static_cast<char*>(far) + page * far_stride * 2, c.k_pool.data() + page * near_stride * 2, bytes);
    }
    c.view.k.data = far;
    c.view.k.page_stride = far_stride;
    EXPECT_EQ(near.bytes, run_on_simt(c).bytes) << "group " << group;
  }
  munmap(far, kBytes);
}
#endif

TEST(SimtMma, LayoutPagesAndGarbageInTheTableChangeNoBit) {
  if (kSlow) return;
  CaseSpec spec = group_of_eight();
  AttentionCase c(spec);
  const Output first = run_on_simt(c);
  c.fill_unused_table_entries(0x7F000000);
  EXPECT_EQ(first.bytes, run_on_simt(c).bytes);
  c.place_pages(99);
  EXPECT_EQ(first.bytes, run_on_simt(c).bytes);
  spec.layout = CacheLayout::hnd;
  EXPECT_EQ(first.bytes, run_on_simt(AttentionCase(spec)).bytes);
}

}  // namespace
}  // namespace kvpool::kernels::test
