// The CUDA kernels, run thread by thread on the CPU, against the double reference.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/attend_plan.hpp"
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/merge.cuh"
#include "tests/kernels/simt_attention.hpp"

namespace kvpool::kernels::test {
namespace {

CaseSpec small_spec() {
  CaseSpec spec;
  spec.cache = DType::bfloat16;
  spec.query = DType::bfloat16;
  spec.dim = 128;
  spec.kv_heads = 1;
  spec.seq_lens = {1, 17, 230};
  spec.fixed_split = 128;
  return spec;
}

/// Weights are rounded to 8 or 11 bits where tensor cores take them: more rows than one block of CUDA cores has.
bool weights_are_rounded(const AttentionCase& c) {
  const auto longest = c.spec.q_lens.empty() ? 1 : *std::max_element(c.spec.q_lens.begin(), c.spec.q_lens.end());
  return longest * c.spec.group > (c.spec.group == 1 ? 1 : 4) || c.spec.dim > 256;
}

void expect_close(const CaseSpec& spec, double tolerance = 1e-6) {
  const AttentionCase c(spec);
  if (weights_are_rounded(c)) tolerance = c.spec.cache == DType::bfloat16 ? 4e-3 : 6e-4;
  const Output got = run_on_simt(c);
  const Output want = run_case(c, kReference);
  ASSERT_TRUE(got.status.ok()) << got.status.error().message;
  const Difference d = difference(c, got, want);
  EXPECT_LE(d.rel_l2, tolerance);
  EXPECT_LE(d.lse, 1e-5) << "scores and sums stay in fp32";
}

TEST(SimtAttention, DecodesGroupsOfFour) { expect_close(small_spec()); }

TEST(SimtAttention, DecodesOneHeadPerKvHead) {
  CaseSpec spec = small_spec();
  spec.group = 1;
  spec.kv_heads = 2;
  expect_close(spec);
}

TEST(SimtAttention, SharesStagesOverManyTiles) {
  CaseSpec spec = small_spec();
  spec.seq_lens = {700};  // eleven tiles in one split: every stage is refilled
  spec.fixed_split = 1024;
  expect_close(spec);
}

#if !defined(KVPOOL_SIMT_TSAN)  // a switch costs tens of microseconds there
TEST(SimtAttention, TakesEveryCacheTypeAndHeadSize) {
  for (const DType cache : {DType::float16, DType::bfloat16, DType::fp8_e4m3, DType::fp8_e5m2}) {
    for (const std::int64_t group : {1, 4}) {
      for (const std::int64_t dim : {8, 64, 72, 96, 120, 128, 192, 256}) {
        SCOPED_TRACE(std::string(to_string(cache)) + " group " + std::to_string(group) + " dim " + std::to_string(dim));
        CaseSpec spec = small_spec();
        spec.cache = cache;
        spec.query = DType::float32;
        spec.group = group;
        spec.dim = dim;
        spec.dim_v = dim == 192 ? 128 : 0;
        spec.layout = CacheLayout::hnd;
        spec.seq_lens = {33, 150};
        if (is_fp8(cache)) spec.k_scale = spec.v_scale = {0.04F};
        expect_close(spec);
      }
    }
  }
}
#endif

#if !defined(KVPOOL_SIMT_TSAN)  // a switch costs tens of microseconds there
TEST(SimtAttention, TakesEveryPageSizeAndGroup) {
  for (const std::int64_t page : {1, 2, 8, 16, 64, 128}) {
    for (const std::int64_t group : {1, 3, 5, 8}) {
      SCOPED_TRACE("page " + std::to_string(page) + " group " + std::to_string(group));
      CaseSpec spec = small_spec();
      spec.page_size = page;
      spec.group = group;
      spec.dim = 64;
      spec.seq_lens = {0, 1, 90};
      expect_close(spec);
    }
  }
}
#endif

TEST(SimtAttention, FollowsEveryLogitRuleInDecodeAndPrefill) {
  for (int rules = kSlow ? 15 : 0; rules < 16; ++rules) {
    SCOPED_TRACE("rules " + std::to_string(rules));
    CaseSpec spec = small_spec();
    spec.dim = 64;
    spec.soft_cap = (rules & 1) != 0 ? 3.0F : 0;
    spec.alibi = (rules & 2) != 0;
    spec.sinks = (rules & 4) != 0;
    spec.window = (rules & 8) != 0 ? 37 : 0;
    spec.seq_lens = {5, 100, 0};
    expect_close(spec, 2e-6);
    spec.q_lens = {5, 9, 0};
    expect_close(spec, 2e-6);
  }
}

/// Slopes of both signs, on CUDA cores and on tensor cores: the keys that matter may be the farthest ones.
TEST(SimtAttention, AlibiOverLongDistancesKeepsItsPrecision) {
  for (const std::int64_t group : {4, 8}) {
    if (kSlow && group == 8) continue;
    CaseSpec spec = small_spec();
    spec.dim = 64;
    spec.group = group;
    spec.seq_lens = {kSlow ? 100 : 900};
    spec.fixed_split = 256;
    spec.alibi = spec.sinks = true;
    AttentionCase c(spec);
    for (std::size_t h = 0; h < c.slopes.size(); ++h)
      c.slopes[h] = (h % 2 == 0 ? 0.9F : -0.9F) * (1 + 0.1F * static_cast<float>(h));
    c.sink_logits[1] = 890;
    const Output got = run_on_simt(c);
    ASSERT_TRUE(got.status.ok()) << got.status.error().message;
    const Difference d = difference(c, got, run_case(c, kReference));
    EXPECT_LE(d.rel_l2, group == 4 ? 2e-6 : 4e-3);
    EXPECT_LE(d.lse, 1e-5);
  }
}

/// Equal keys and one-hot values: the mean over the last min(length, 4) tokens, in prefill and in decode.
TEST(SimtAttention, AWindowCountsTheCurrentToken) {
  CaseSpec spec = small_spec();
  spec.page_size = 2;
  spec.window = 4;
  spec.group = 1;
  spec.dim = 16;
  for (const std::int32_t len : kSlow ? std::vector<std::int32_t>{6} : std::vector<std::int32_t>{1, 3, 4, 5, 12}) {
    for (const bool prefill : {false, true}) {
      spec.seq_lens = {len};
      spec.q_lens = prefill ? std::vector<std::int32_t>{len} : std::vector<std::int32_t>{};
      AttentionCase c(spec);
      for (std::int64_t j = 0; j < len; ++j) {
        for (std::int64_t d = 0; d < 16; ++d) {
          const std::int32_t page = c.table[static_cast<std::size_t>(j / 2)];
          const std::uint16_t key = 0x3F00;
          const std::uint16_t value = d == j ? 0x3F80 : 0;
          std::memcpy(c.k_pool.data() + (row_offset(c.view.k, page, j % 2, 0) + d) * 2, &key, 2);
          std::memcpy(c.v_pool.data() + (row_offset(c.view.v, page, j % 2, 0) + d) * 2, &value, 2);
        }
      }
      const Output got = run_on_simt(c);
      ASSERT_TRUE(got.status.ok());
      const std::int64_t rows = c.num_tokens();
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t position = len - rows + i;
        const std::int64_t first = std::max<std::int64_t>(0, position - 3);
        for (std::int64_t d = 0; d < 16; ++d) {
          const double want = d >= first && d <= position ? 1.0 / static_cast<double>(position - first + 1) : 0;
          EXPECT_NEAR(static_cast<double>(got.at(static_cast<std::size_t>(i * 16 + d), DType::float32)), want, 2e-3)
              << "length " << len << " position " << position;
        }
      }
    }
  }
}

TEST(SimtAttention, AFutureNanDoesNotReachEarlierQueries) {
  CaseSpec spec = small_spec();
  spec.group = 1;
  expect_future_nan_stays_behind(spec);
}

TEST(SimtAttention, SchedulesThreadsAndCopyTimingChangeNoBit) {
  CaseSpec spec = small_spec();
  spec.seq_lens = kSlow ? std::vector<std::int32_t>{140} : std::vector<std::int32_t>{17, 400};
  spec.fixed_split = 256;
  expect_same_bits_on_every_schedule(spec);
}

TEST(SimtAttention, AFixedSplitMakesResultsIndependentOfTheBatch) {
  CaseSpec spec = small_spec();
  spec.seq_lens = {200, 30};
  const AttentionCase c(spec);
  const Output together = run_on_simt(c);
  AttentionCase alone = c;
  alone.spec.seq_lens = {200};
  alone.cu_q = {0, 1};
  alone.view.k.data = alone.k_pool.data();
  alone.view.v.data = alone.v_pool.data();
  SimtRun run;
  run.target_blocks = 100;
  const Output single = run_on_simt(alone, run);
  ASSERT_TRUE(together.status.ok() && single.status.ok());
  EXPECT_TRUE(std::equal(single.bytes.begin(), single.bytes.end(), together.bytes.begin()));
}

TEST(SimtAttention, RefusesByNameWhatHasNoKernel) {
  CaseSpec spec = small_spec();
  spec.dim = 46;
  Output got = run_on_simt(AttentionCase(spec));
  EXPECT_EQ(got.status.error().code, ErrorCode::unsupported);
  EXPECT_NE(got.status.error().message.find("46"), std::string::npos);
  spec.dim = 64;
  spec.cache = DType::float32;
  EXPECT_EQ(run_on_simt(AttentionCase(spec)).status.error().code, ErrorCode::unsupported);
}

/// Two batches in plans of one capacity: lists of the same length, the bits of plans that fit them exactly.
TEST(SimtAttention, PlansOfAFixedSizeChangeNoBit) {
  const PlanCapacity capacity{4, 24, 300};
  std::size_t lengths[2][3] = {};
  for (int batch = 0; batch < 2; ++batch) {
    CaseSpec spec = small_spec();
    spec.dim = 64;
    spec.group = 2;
    spec.seq_lens = batch == 0 ? std::vector<std::int32_t>{17, 200, 40} : std::vector<std::int32_t>{90};
    if (batch == 0) spec.q_lens = {1, 10, 2};
    const AttentionCase c(spec);
    SimtRun run;
    const Output exact = run_on_simt(c, run);
    run.capacity = capacity;
    const Output padded = run_on_simt(c, run);
    ASSERT_TRUE(exact.status.ok() && padded.status.ok()) << padded.status.error().message;
    EXPECT_EQ(exact.bytes, padded.bytes);
    EXPECT_EQ(exact.lse, padded.lse);

    const auto step = check_problem(c.problem(), c.spec.seq_lens, c.cu_q, {});
    const gpu::PlanLimits limits = gpu::plan_limits(c.problem(), capacity, run.target_blocks);
    gpu::AttendPlan plan;
    gpu::plan_attend(*step, run.target_blocks, plan);
    EXPECT_LE(plan.num_slots, limits.slots);
    EXPECT_LE(static_cast<std::int64_t>(plan.mma_items.size()), limits.items);
    gpu::pad_plan(plan, limits);
    lengths[batch][0] = plan.blocks.size();
    lengths[batch][1] = plan.core_items.size();
    lengths[batch][2] = plan.mma_items.size();
  }
  EXPECT_TRUE(std::equal(lengths[0], lengths[0] + 3, lengths[1]));
}

TEST(SimtAttention, NoStepWithinItsCapacityOutgrowsItsLists) {
  std::mt19937 rng(5);
  for (int i = 0; i < 400; ++i) {
    AttentionProblem problem = AttentionCase(small_spec()).problem();
    problem.num_query_heads = problem.num_kv_heads * static_cast<std::int64_t>(1 + rng() % 9);
    problem.fixed_split = rng() % 2 == 0 ? 0 : static_cast<std::int64_t>(64 + rng() % 300);
    problem.sliding_window = rng() % 2 == 0 ? 0 : static_cast<std::int64_t>(1 + rng() % 500);
    const PlanCapacity capacity{8, 40, 3000};
    std::vector<std::int32_t> lens;
    std::vector<std::int32_t> cu_q = {0};
    while (static_cast<int>(lens.size()) < 8 && cu_q.back() < 40) {
      lens.push_back(static_cast<std::int32_t>(rng() % 3001));
      const auto room = static_cast<std::uint32_t>(std::min(40 - cu_q.back(), lens.back()));
      cu_q.push_back(cu_q.back() + static_cast<std::int32_t>(rng() % (room + 1)));
    }
    const auto target = static_cast<std::int64_t>(1 + rng() % 400);
    const auto step = check_problem(problem, lens, cu_q, {});
    ASSERT_TRUE(step.ok()) << step.error().message;
    const gpu::PlanLimits limits = gpu::plan_limits(problem, capacity, target);
    gpu::AttendPlan plan;
    gpu::plan_attend(*step, target, plan);
    ASSERT_LE(static_cast<std::int64_t>(plan.blocks.size()), limits.blocks) << i;
    ASSERT_LE(static_cast<std::int64_t>(plan.core_items.size() + plan.mma_items.size()), limits.items) << i;
    ASSERT_LE(plan.num_slots, limits.slots) << i;
  }
}

TEST(SimtCacheOps, AppendWritesWhatTheHostWrites) {
  for (const DType cache : {DType::bfloat16, DType::fp8_e4m3}) {
    CaseSpec spec = small_spec();
    spec.cache = cache;
    spec.seq_lens = {20};
    spec.kv_heads = 2;
    AttentionCase device(spec);
    AttentionCase host = device;
    host.view.k.data = host.k_pool.data();
    host.view.v.data = host.v_pool.data();
    std::vector<float> rows(6 * 2 * 128);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = 0.013F * static_cast<float>(i % 997) - 5.0F;
    const std::int64_t slots[] = {3, kSkipSlot, 17, device.num_pages * 16, 40, -7};
    const std::vector<float> scale = {0.5F, 0.07F};
    const KvScales scales{scale, scale, 0};
    const NewRows fresh{dense_queries(rows.data(), DType::float32, 2, 128),
                        dense_queries(rows.data(), DType::float32, 2, 128)};
    ASSERT_TRUE(append(host.view, scales, fresh, slots, 6, kReference).ok());
    device.view.k.data = device.k_pool.data();
    device.view.v.data = device.v_pool.data();
    const gpu::AppendParams params = gpu::append_params(device.view, scales, fresh, slots);
    simt::Grid grid;
    grid.x = 6;
    const auto result = simt::launch(grid, [&] {
      if (cache == DType::bfloat16) {
        gpu::append_block<Bf16, float>(params);
      } else {
        gpu::append_block<E4m3, float>(params);
      }
    });
    ASSERT_TRUE(result.ok()) << result.error;
    EXPECT_EQ(device.k_pool, host.k_pool);
    EXPECT_EQ(device.v_pool, host.v_pool);
  }
}

TEST(SimtCacheOps, PageCopiesMoveWholePages) {
  std::vector<std::uint32_t> pool(6 * 64);  // pages of 4 tokens, 2 heads, rows of 32 bytes
  for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<std::uint32_t>(i * 2654435761U);
  const auto before = pool;
  const gpu::CopySide side{pool.data(), 16, 4, 2};
  const gpu::CopyJob job{side, side, 4, 2, 2};
  const gpu::CopyPair pairs[] = {{0, 4}, {3, 1}};
  const gpu::CopyParams params{&job, pairs};
  simt::Grid grid;
  grid.x = 2;
  ASSERT_TRUE(simt::launch(grid, [&] { gpu::copy_page_block<gpu::Unit16>(params); }).ok());
  for (std::size_t page = 0; page < 6; ++page) {
    const std::size_t source = page == 4 ? 0 : page == 1 ? 3 : page;
    EXPECT_TRUE(std::equal(pool.begin() + static_cast<std::ptrdiff_t>(page * 64),
                           pool.begin() + static_cast<std::ptrdiff_t>(page * 64 + 64),
                           before.begin() + static_cast<std::ptrdiff_t>(source * 64)));
  }
}

TEST(SimtCacheOps, MergingTwoPartsIsWhatTheHostDoes) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> a = {1, 2, 3, 4, 9, 9, 9, 9};
  const std::vector<float> b = {5, 6, 7, 8, 5, 6, 9, 9};
  std::vector<float> lse_a = {1.1F, 0.25F, -inf, -inf};
  const std::vector<float> lse_b = {-0.3F, -inf, 0.5F, -inf};
  std::vector<float> want(8);
  std::vector<float> want_lse(4);
  ASSERT_TRUE(merge_attention(a.data(), lse_a.data(), b.data(), lse_b.data(), want.data(), want_lse.data(), 4, 2).ok());
  std::vector<float> out(8, -1);
  const gpu::MergePairParams params{a.data(), lse_a.data(), b.data(), lse_b.data(), out.data(), lse_a.data(), 2};
  simt::Grid grid;
  grid.x = 4;
  grid.threads = 32;
  ASSERT_TRUE(simt::launch(grid, [&] { gpu::merge_pair_block(params); }).ok());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(out[i], want[i], 1e-6F);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(lse_a[i] == want_lse[i] || std::abs(lse_a[i] - want_lse[i]) < 1e-6F);
}

}  // namespace
}  // namespace kvpool::kernels::test
