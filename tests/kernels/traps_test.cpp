// Traps that have caught other attention kernels: stale NaN, empty partials, the base of the LSE, edges of the window,
// offsets past 32 bits, refusals, and shapes drawn at random.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>

#include "kvpool/kernels/host_memory.hpp"
#include "tests/kernels/attention_case.hpp"

namespace kvpool::kernels::test {
namespace {

class TrapOnTier : public testing::TestWithParam<CpuTier> {
 protected:
  [[nodiscard]] static ExecOptions exec() { return {Backend::cpu, GetParam(), 1, 0, nullptr}; }
};
INSTANTIATE_TEST_SUITE_P(Traps, TrapOnTier, testing::ValuesIn(available_tiers()),
                         [](const auto& param) { return std::string(to_string(param.param)); });

TEST_P(TrapOnTier, EmptySequencesGiveZeroAndMinusInfinity) {
  for (const std::vector<std::int32_t>& lens : {std::vector<std::int32_t>{1, 0, 3}, {0}, {0, 0}}) {
    CaseSpec spec;
    spec.seq_lens = lens;
    spec.page_size = 2;
    spec.sinks = true;
    const AttentionCase c(spec);
    const Output got = run_case(c, exec());
    ASSERT_TRUE(got.status.ok());
    EXPECT_LE(difference(c, got, run_case(c, kReference)).rel_l2, 1e-5);
    const auto heads = static_cast<std::size_t>(spec.kv_heads * spec.group);
    for (std::size_t b = 0; b < lens.size(); ++b) {
      if (lens[b] != 0) continue;
      for (std::size_t h = 0; h < heads; ++h) {
        EXPECT_EQ(got.lse[b * heads + h], -std::numeric_limits<float>::infinity());
        EXPECT_EQ(got.at((b * heads + h) * 64 + 5, DType::float32), 0.0F);
      }
    }
  }
}

TEST_P(TrapOnTier, AnEmptyBatchDoesNothing) {
  CaseSpec spec;
  spec.seq_lens = {};
  const AttentionCase c(spec);
  EXPECT_TRUE(run_case(c, exec()).status.ok());
}

TEST_P(TrapOnTier, TheLseIsTheNaturalLogarithmOfTheFormula) {
  CaseSpec spec;  // equal keys: LSE = s + ln(number of keys)
  spec.seq_lens = {5};
  spec.group = 1;
  spec.kv_heads = 1;
  AttentionCase c(spec);
  const auto zeros = encode_rows(std::vector<float>(c.q.size() / 4, 0.0F), DType::float32);
  c.q = zeros;
  const Output got = run_case(c, exec());
  EXPECT_NEAR(got.lse[0], std::log(5.0), 1e-6);
}

TEST_P(TrapOnTier, ANanInsideASequenceStaysVisible) {
  for (const DType cache : kCacheTypes) {
    CaseSpec spec;
    spec.cache = cache;
    spec.seq_lens = {40, 40};
    AttentionCase c(spec);
    const std::int64_t row = row_offset(c.view.k, c.table[1], 3, 0) * element_bytes(cache);
    c.k_pool[static_cast<std::size_t>(row)] = poison_byte(cache);
    c.k_pool[static_cast<std::size_t>(row + element_bytes(cache) - 1)] = poison_byte(cache);
    if (cache == DType::float32) c.k_pool[static_cast<std::size_t>(row + 2)] = 0xFF;
    const Output got = run_case(c, exec());
    EXPECT_TRUE(std::isnan(got.at(0, DType::float32))) << to_string(cache);
    EXPECT_TRUE(std::isnan(got.lse[0])) << to_string(cache);
    EXPECT_FALSE(std::isnan(got.lse[spec.seq_lens.size() * 8 - 1])) << to_string(cache);
  }
}

TEST_P(TrapOnTier, AFutureNanDoesNotReachEarlierQueries) {
  CaseSpec spec;
  spec.seq_lens = {40};
  spec.q_lens = {40};
  spec.group = 1;
  AttentionCase c(spec);
  const auto row = static_cast<std::size_t>(row_offset(c.view.v, c.table[1], 4, 0));  // token 20 of head 0
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(c.v_pool.data() + row * 4, &nan, 4);
  const Output got = run_case(c, exec());
  for (std::size_t t = 0; t < 40; ++t) EXPECT_EQ(std::isnan(got.at(t * 2 * 64, DType::float32)), t >= 20) << t;
}

TEST_P(TrapOnTier, OffsetsPassThirtyTwoBits) {
  constexpr std::int64_t kStride = (std::int64_t{1} << 32) + 4096;  // elements: one page every 8 GiB
  auto memory = HostMemory::allocate(static_cast<std::size_t>(kStride * 2 * 4));
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  CaseSpec spec;
  spec.cache = DType::bfloat16;
  spec.kv_heads = 1;
  spec.seq_lens = {31};
  const AttentionCase dense(spec);
  PagedKvView far = dense.view;
  far.num_pages = 4;
  far.k = {memory->data(), kStride, dense.view.k.token_stride, dense.view.k.head_stride};
  far.v = {static_cast<std::uint16_t*>(memory->data()) + kStride / 2, kStride, dense.view.v.token_stride,
           dense.view.v.head_stride};
  const std::int32_t pages[] = {3, 1};
  const PagedKvView from[] = {dense.view};
  const PagedKvView to[] = {far};
  const PagePair pairs[] = {{dense.table[0], 3}, {dense.table[1], 1}};
  ASSERT_TRUE(transfer_pages(from, to, pairs).ok());
  Output got = run_case(dense, exec());
  const Output want = got;
  AttentionArgs args = dense.args(got.bytes.data(), got.lse.data());
  args.kv = far;
  args.table = {pages, 2, 2};
  std::fill(got.bytes.begin(), got.bytes.end(), 0);
  ASSERT_TRUE(paged_attention(dense.problem(), spec.seq_lens, {}, args, exec()).ok());
  EXPECT_EQ(got.bytes, want.bytes);
}

/// Windows that begin with a tile of keys and in the middle of one: pages before them may not even be there.
TEST_P(TrapOnTier, PagesBeforeTheWindowAreNotTouched) {
  for (const std::int64_t window : {512, 400}) {
    CaseSpec spec;
    spec.kv_heads = 1;
    spec.dim = 64;
    spec.page_size = 16;  // a K page is 4 KiB: one page of memory
    spec.seq_lens = {32768};
    spec.window = window;
    spec.poison = false;
    const AttentionCase c(spec);
    auto memory = HostMemory::allocate(c.k_pool.size() * 2);
    ASSERT_TRUE(memory.ok());
    auto* base = static_cast<unsigned char*>(memory->data());
    std::memcpy(base, c.k_pool.data(), c.k_pool.size());
    std::memcpy(base + c.k_pool.size(), c.v_pool.data(), c.v_pool.size());
    for (std::size_t i = 0; i < static_cast<std::size_t>(32768 - window) / 16; ++i) {
      const auto page = static_cast<std::size_t>(c.table[i]) * 4096;
      ASSERT_EQ(0, mprotect(base + page, 4096, PROT_NONE));
      ASSERT_EQ(0, mprotect(base + c.k_pool.size() + page, 4096, PROT_NONE));
    }
    Output got = run_case(c, exec());
    const Output want = got;
    AttentionArgs args = c.args(got.bytes.data(), got.lse.data());
    args.kv.k.data = base;
    args.kv.v.data = base + c.k_pool.size();
    std::fill(got.bytes.begin(), got.bytes.end(), 0);
    ASSERT_TRUE(paged_attention(c.problem(), spec.seq_lens, {}, args, exec()).ok());
    EXPECT_EQ(got.bytes, want.bytes);
  }
}

TEST_P(TrapOnTier, AlibiOverLongDistancesKeepsItsPrecisionInBothDirections) {
  for (const DType cache : {DType::float32, DType::bfloat16}) {
    CaseSpec spec;
    spec.cache = spec.query = cache;
    spec.seq_lens = {1, 3000, 9000};
    spec.alibi = spec.sinks = true;
    AttentionCase c(spec);
    for (std::size_t h = 0; h < c.slopes.size(); ++h) {
      c.slopes[h] = (h % 2 == 0 ? 0.3F : -0.3F) * (1 + 0.1F * static_cast<float>(h));
      if (h % 4 == 3) c.sink_logits[h] = 899 + static_cast<float>(h);  // where the LSE of 3,000 keys may be
    }
    const Difference d = difference(c, run_case(c, exec()), run_case(c, kReference));
    EXPECT_LE(d.rel_l2, 1e-5);
    EXPECT_LE(d.lse, 1e-5);
    c.spec.window = 100;
    const Difference near = difference(c, run_case(c, exec()), run_case(c, kReference));
    EXPECT_LE(near.rel_l2, 1e-5);
    EXPECT_LE(near.lse, 1e-5);
  }
}

/// Reading no more than the window takes no longer in a long sequence. The least of many turns is compared, several
/// times if need be: other processes only ever make a turn longer.
TEST_P(TrapOnTier, TheTimeOfAWindowDoesNotGrowWithTheSequence) {
  CaseSpec spec;
  spec.cache = spec.query = DType::bfloat16;
  spec.window = 512;
  spec.poison = false;
  std::vector<AttentionCase> cases;
  std::vector<AttentionPlan> plans;
  for (const std::int32_t len : {4096, 32768}) {
    spec.seq_lens = {len};
    cases.emplace_back(spec);
    cases.back().place_pages(1);
  }
  for (AttentionCase& c : cases) {
    c.place_pages(1);  // views point into the case at its place
    plans.push_back(std::move(*AttentionPlan::make(c.problem(), c.spec.seq_lens, {}, exec())));
  }
  std::vector<float> out(8 * 64);
  double ratio = 0;
  for (int attempt = 0; attempt < 5 && (attempt == 0 || ratio > 1.2); ++attempt) {
    double least[2] = {1e9, 1e9};
    for (int turn = 0; turn < 40; ++turn) {
      for (std::size_t i = 0; i < 2; ++i) {
        const AttentionArgs args = cases[i].args(out.data(), nullptr);
        const auto start = std::chrono::steady_clock::now();
        ASSERT_TRUE(plans[i].run(args).ok());
        least[i] = std::min(least[i], std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
    }
    ratio = least[1] / least[0];
  }
  EXPECT_LE(ratio, 1.2);
}

TEST_P(TrapOnTier, AFixedSplitMakesResultsIndependentOfTheOrderOfTheBatch) {
  CaseSpec spec;
  spec.cache = spec.query = DType::bfloat16;
  spec.seq_lens = {300, 5, 77};
  spec.fixed_split = 64;
  const AttentionCase c(spec);
  const Output forward = run_case(c, exec());
  AttentionCase turned = c;  // the same pages and queries, last sequence first
  const auto row = static_cast<std::size_t>(c.columns);
  const std::size_t q_bytes = c.q.size() / 3;
  for (std::size_t b = 0; b < 3; ++b) {
    turned.spec.seq_lens[b] = c.spec.seq_lens[2 - b];
    std::copy_n(c.table.begin() + static_cast<std::ptrdiff_t>((2 - b) * row), row,
                turned.table.begin() + static_cast<std::ptrdiff_t>(b * row));
    std::copy_n(c.q.begin() + static_cast<std::ptrdiff_t>((2 - b) * q_bytes), q_bytes,
                turned.q.begin() + static_cast<std::ptrdiff_t>(b * q_bytes));
  }
  const Output backward = run_case(turned, exec());
  ASSERT_TRUE(forward.status.ok() && backward.status.ok());
  const std::size_t bytes = forward.bytes.size() / 3;
  for (std::size_t b = 0; b < 3; ++b)
    EXPECT_EQ(0, std::memcmp(forward.bytes.data() + b * bytes, backward.bytes.data() + (2 - b) * bytes, bytes)) << b;
}

TEST_P(TrapOnTier, TwoLevelsOfASharedPrefixMergeToTheFlatResult) {
  CaseSpec spec;
  spec.page_size = 8;
  spec.seq_lens = {100};
  spec.sinks = true;
  const AttentionCase c(spec);
  const Output flat = run_case(c, exec());
  // Keys 0..63 as one level, without the sink; the rest as another, whose table starts later.
  Output prefix = flat;
  Output suffix = flat;
  AttentionArgs args = c.args(prefix.bytes.data(), prefix.lse.data());
  args.rules.sinks = {};
  const std::int32_t first[] = {64};
  ASSERT_TRUE(paged_attention(c.problem(), first, {}, args, exec()).ok());
  args = c.args(suffix.bytes.data(), suffix.lse.data());
  args.table.entries += 64 / 8;
  args.table.columns -= 64 / 8;
  const std::int32_t second[] = {36};
  ASSERT_TRUE(paged_attention(c.problem(), second, {}, args, exec()).ok());
  Output merged = flat;
  ASSERT_TRUE(merge_attention(reinterpret_cast<float*>(prefix.bytes.data()), prefix.lse.data(),
                              reinterpret_cast<float*>(suffix.bytes.data()), suffix.lse.data(),
                              reinterpret_cast<float*>(merged.bytes.data()), merged.lse.data(), 8, 64)
                  .ok());
  const Difference d = difference(c, merged, flat);
  EXPECT_LE(d.rel_l2, 1e-6);
  EXPECT_LE(d.lse, 1e-5);
}

TEST_P(TrapOnTier, RandomShapesAgreeWithTheReference) {
  const char* scale = std::getenv("KVPOOL_TEST_SCALE");
  const std::uint32_t cases = scale != nullptr && std::string(scale) == "long" ? 3000 : 60;
  std::mt19937 rng(2026);
  const auto pick = [&](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(rng);
  };
  for (std::uint32_t i = 0; i < cases; ++i) {
    CaseSpec spec;
    spec.seed = i;
    spec.cache = kCacheTypes[pick(0, 4)];
    spec.query = kCacheTypes[pick(0, 2)];
    spec.layout = pick(0, 1) == 0 ? CacheLayout::nhd : CacheLayout::hnd;
    spec.page_size = pick(1, 40);
    spec.kv_heads = pick(1, 3);
    spec.group = pick(1, 9);
    spec.dim = pick(1, 140);
    spec.dim_v = pick(0, 1) == 0 ? 0 : pick(1, 140);
    spec.window = pick(0, 2) == 0 ? pick(1, 200) : 0;
    spec.fixed_split = pick(0, 1) == 0 ? pick(1, 300) : 0;
    spec.soft_cap = pick(0, 3) == 0 ? 5.0F : 0;
    spec.alibi = pick(0, 3) == 0;
    spec.sinks = pick(0, 3) == 0;
    if (is_fp8(spec.cache)) spec.k_scale = {0.05F};
    spec.seq_lens.clear();
    const bool prefill = pick(0, 1) == 0;
    for (std::int64_t b = pick(0, 4); b > 0; --b) {
      spec.seq_lens.push_back(static_cast<std::int32_t>(pick(0, 1) == 0 ? pick(0, 20) : pick(0, 400)));
      if (prefill) spec.q_lens.push_back(static_cast<std::int32_t>(pick(0, std::min(spec.seq_lens.back(), 40))));
    }
    SCOPED_TRACE("case " + std::to_string(i));
    const AttentionCase c(spec);
    const Output got = run_case(c, exec());
    const Output want = run_case(c, kReference);
    ASSERT_TRUE(got.status.ok() && want.status.ok());
    const Difference d = difference(c, got, want);
    ASSERT_LE(d.rel_l2, 1e-5);
    ASSERT_LE(d.lse, 1e-5);
  }
}

TEST(Refusals, NameWhatIsWrongBeforeAnyWork) {
  CaseSpec spec;
  const AttentionCase c(spec);
  std::vector<unsigned char> out(6 * 8 * 64 * 4, 0xEE);
  const std::vector<unsigned char> untouched = out;
  const auto refused = [&](const char* word, ErrorCode code, auto change) {
    AttentionProblem problem = c.problem();
    AttentionArgs args = c.args(out.data(), nullptr);
    std::vector<std::int32_t> lens = spec.seq_lens;
    std::vector<std::int32_t> cu_q = c.cu_q;
    ExecOptions exec;
    change(problem, args, lens, cu_q, exec);
    const Status status = paged_attention(problem, lens, cu_q, args, exec);
    ASSERT_FALSE(status.ok()) << word;
    EXPECT_EQ(status.error().code, code) << status.error().message;
    EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().message;
    EXPECT_EQ(out, untouched);
  };
  const ErrorCode bad = ErrorCode::invalid_argument;
  refused("num_query_heads", bad, [](auto& p, auto&, auto&, auto&, auto&) { p.num_query_heads = 0; });
  refused("multiple", bad, [](auto& p, auto&, auto&, auto&, auto&) { p.num_query_heads = 7; });
  refused("sliding_window", bad, [](auto& p, auto&, auto&, auto&, auto&) { p.sliding_window = -1; });
  refused("page_size", bad, [](auto& p, auto&, auto&, auto&, auto&) { p.page_size = 8; });
  refused("seq_lens[2]", bad, [](auto&, auto&, auto& lens, auto&, auto&) { lens[2] = -4; });
  refused("queries", bad, [](auto&, auto&, auto& lens, auto& cu_q, auto&) { lens = {1}, cu_q = {0, 2}; });
  refused("cu_q", bad, [](auto&, auto&, auto&, auto& cu_q, auto&) { cu_q = {0, 1}; });
  refused("columns", bad, [](auto&, auto& a, auto&, auto&, auto&) { a.table.columns = 1; });
  refused("page 0 of sequence 0", bad, [](auto&, auto& a, auto&, auto&, auto&) {
    a.kv.num_pages = 1;
    a.kv.num_pages = 1;
    static const std::int32_t kFar[64] = {77};
    a.table = {kFar, 0, 64};
  });
  refused("k_scale", bad, [](auto&, auto& a, auto&, auto&, auto&) {
    static const float kZero[] = {0};
    a.scales.k = kZero;
  });
  refused("sinks", bad, [](auto&, auto& a, auto&, auto&, auto&) {
    static const float kTwo[] = {0, 1};
    a.rules.sinks = kTwo;
  });
  refused("soft_cap", bad, [](auto&, auto& a, auto&, auto&, auto&) { a.rules.soft_cap = -1; });
  refused("uint8", ErrorCode::unsupported, [](auto&, auto& a, auto&, auto&, auto&) { a.kv.dtype = DType::uint8; });
  refused("queries of type fp8", ErrorCode::unsupported,
          [](auto&, auto& a, auto&, auto&, auto&) { a.q.dtype = DType::fp8_e4m3; });
  refused("max_threads", bad, [](auto&, auto&, auto&, auto&, auto& e) { e.max_threads = -1; });
}

TEST(Refusals, ABackendThatIsNotThereIsNamed) {
  const Status cuda = backend_available(Backend::cuda);
  EXPECT_TRUE(backend_available(Backend::cpu).ok());
  if (cuda.ok()) return;
  CaseSpec spec;
  const Output got = run_case(AttentionCase(spec), {Backend::cuda, {}, 0, 0, nullptr});
  ASSERT_FALSE(got.status.ok());
  EXPECT_EQ(got.status.error().code, cuda.error().code);
  EXPECT_NE(got.status.error().message.find("CUDA"), std::string::npos);
}

TEST(Tiers, TheStrongestIsChosenAndReported) {
  const std::int32_t lens[] = {3};
  AttentionProblem problem;
  problem.num_query_heads = problem.num_kv_heads = 1;
  problem.head_dim = problem.head_dim_v = 8;
  const auto plan = AttentionPlan::make(problem, lens, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->tier(), best_tier());
  for (const CpuTier tier : {CpuTier::generic, CpuTier::avx2, CpuTier::avx512, CpuTier::avx512_bf16, CpuTier::neon}) {
    const auto forced = AttentionPlan::make(problem, lens, {}, {Backend::cpu, tier, 1, 0, nullptr});
    ASSERT_EQ(forced.ok(), tier_available(tier));
    if (forced.ok()) {
      EXPECT_EQ(forced->tier(), tier);
    } else {
      EXPECT_EQ(forced.error().code, ErrorCode::unsupported);
    }
  }
}

}  // namespace
}  // namespace kvpool::kernels::test
