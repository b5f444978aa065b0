// The largest error of any element, against that of the same mathematics in bf16: twice it, or three times with a soft
// cap, and two roundings.
#include <gtest/gtest.h>

#include "tests/kernels/low_precision.hpp"

namespace kvpool::kernels::test {
namespace {

class LargestError : public testing::TestWithParam<CpuTier> {};
INSTANTIATE_TEST_SUITE_P(Cpu, LargestError, testing::ValuesIn(available_tiers()),
                         [](const auto& param) { return std::string(to_string(param.param)); });

TEST_P(LargestError, IsNoMoreThanTwiceThatOfBf16) {
  for (const DType cache : kCacheTypes) {
    for (const DType out : {DType::float32, DType::float16, DType::bfloat16}) {
      for (const float soft_cap : {0.0F, 2.0F}) {
        SCOPED_TRACE(std::string(to_string(cache)) + " to " + std::string(to_string(out)));
        CaseSpec spec;
        spec.cache = cache;
        spec.query = DType::bfloat16;
        spec.soft_cap = soft_cap;
        spec.seq_lens = {1, 33, 150};
        spec.q_lens = {1, 3, 1};
        if (is_fp8(cache)) spec.k_scale = spec.v_scale = {0.05F};
        const AttentionCase c(spec);
        AttentionCase exact = c;  // the reference keeps fp32 results
        exact.spec.out = DType::float32;
        spec.out = out;
        const AttentionCase as_asked(spec);
        const Output got = run_case(as_asked, {Backend::cpu, GetParam(), 1, 0, nullptr});
        expect_within_bf16_error(as_asked, got, run_case(exact, kReference), attention_in_bf16(c),
                                 soft_cap > 0 ? 3 : 2);
      }
    }
  }
}

/// What the bound is made of: errors of bf16 that can be seen, and no more than those.
TEST(LargestErrorBound, IsThatOfAttentionInBf16) {
  CaseSpec spec;
  spec.cache = spec.query = DType::bfloat16;
  spec.seq_lens = {150};
  const AttentionCase c(spec);
  const Output reference = run_case(c, kReference);
  const std::vector<float> low = attention_in_bf16(c);
  double worst = 0;
  for (std::size_t i = 0; i < low.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(low[i] - reference.at(i, DType::float32))));
  EXPECT_GT(worst, 1e-4) << "bf16 makes errors that can be seen";
  EXPECT_LT(worst, 2e-2) << "and is attention all the same";
}

}  // namespace
}  // namespace kvpool::kernels::test
