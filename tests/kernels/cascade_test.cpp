// A shared prefix in two and three levels against flat attention.
#include <gtest/gtest.h>

#include "tests/kernels/attention_case.hpp"

namespace kvpool::kernels::test {
namespace {

constexpr std::int64_t kPage = 16;

/// Five sequences whose first four pages are the same.
AttentionCase shared_prefix() {
  CaseSpec spec;
  spec.cache = DType::bfloat16;
  spec.query = DType::bfloat16;
  spec.seq_lens = {65, 70, 100, 64 + 33, 64 + 16};
  AttentionCase c(spec);
  for (std::size_t b = 1; b < spec.seq_lens.size(); ++b)
    std::copy_n(c.table.begin(), 4, c.table.begin() + static_cast<std::ptrdiff_t>(b) * c.columns);
  return c;
}

struct Part {
  std::vector<float> out;
  std::vector<float> lse;
};

/// Pages [first, end) of every sequence as one level: shared by all queries, or each its own up to its length.
Part level(const AttentionCase& c, std::int64_t first, std::int64_t end, bool shared, const ExecOptions& exec) {
  const std::size_t rows = c.spec.seq_lens.size() * static_cast<std::size_t>(c.spec.kv_heads * c.spec.group);
  Part part{std::vector<float>(rows * static_cast<std::size_t>(c.dim_v)), std::vector<float>(rows)};
  AttentionArgs args = c.args(part.out.data(), part.lse.data());
  args.table.entries += first;
  args.table.columns -= first;
  AttentionProblem problem = c.problem();
  std::vector<std::int32_t> lens;
  std::vector<std::int32_t> cu_q;
  if (shared) {
    problem.causal = false;
    lens = {static_cast<std::int32_t>((end - first) * kPage)};
    cu_q = {0, static_cast<std::int32_t>(c.spec.seq_lens.size())};
  } else {
    for (const std::int32_t len : c.spec.seq_lens) lens.push_back(len - static_cast<std::int32_t>(first * kPage));
  }
  const Status status = paged_attention(problem, lens, cu_q, args, exec);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return part;
}

Part merged(const Part& a, const Part& b, std::int64_t dim, const ExecOptions& exec) {
  Part both{std::vector<float>(a.out.size()), std::vector<float>(a.lse.size())};
  EXPECT_TRUE(merge_attention(a.out.data(), a.lse.data(), b.out.data(), b.lse.data(), both.out.data(), both.lse.data(),
                              static_cast<std::int64_t>(a.lse.size()), dim, exec)
                  .ok());
  return both;
}

void expect_flat(const AttentionCase& c, const Part& part) {
  const Output want = run_case(c, kReference);
  Output got;
  got.bytes.resize(part.out.size() * sizeof(float));
  std::memcpy(got.bytes.data(), part.out.data(), got.bytes.size());
  got.lse = part.lse;
  const Difference d = difference(c, got, want);
  EXPECT_LE(d.rel_l2, 1e-5);
  EXPECT_LE(d.lse, 1e-5);
}

TEST(Cascade, TwoAndThreeLevelsAreFlatAttention) {
  const AttentionCase c = shared_prefix();
  for (const Backend backend : {Backend::reference, Backend::cpu}) {
    SCOPED_TRACE(std::string(to_string(backend)));
    ExecOptions exec;
    exec.backend = backend;
    const Part own = level(c, 4, 0, false, exec);
    expect_flat(c, merged(level(c, 0, 4, true, exec), own, c.dim_v, exec));
    const Part middle = level(c, 1, 4, true, exec);
    expect_flat(c, merged(level(c, 0, 1, true, exec), merged(middle, own, c.dim_v, exec), c.dim_v, exec));
  }
}

TEST(Cascade, RulesThatNeedPositionsAreRefusedWithoutThem) {
  CaseSpec spec;
  spec.causal = false;
  spec.window = 8;
  EXPECT_EQ(run_case(AttentionCase(spec), {}).status.error().code, ErrorCode::invalid_argument);
  spec.window = 0;
  spec.alibi = true;
  EXPECT_EQ(run_case(AttentionCase(spec), {}).status.error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace kvpool::kernels::test
