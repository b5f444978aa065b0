// From the manager to the kernels: requests share a cached prefix, the manager counts its blocks, and attention in two
// levels over those blocks gives what attention in one level gives.
#include <gtest/gtest.h>

#include "kvpool/kernels/cascade_attention.hpp"
#include "tests/kernels/attention_case.hpp"
#include "tests/unit/manager/engine.hpp"

namespace kvpool::kernels::test {
namespace {

namespace engines = kvpool::test;

constexpr std::int64_t kBlock = 16;
constexpr std::int64_t kBlocks = 64;
constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kGroup = 4;
constexpr std::int64_t kDim = 64;

/// Requests of one engine and the pool that their blocks stand for; the pool starts as NaN.
class SharedStep {
 public:
  explicit SharedStep(DType cache) : engine_(options()) {
    const std::size_t bytes = static_cast<std::size_t>(kBlocks * kBlock * kHeads * kDim * element_bytes(cache));
    k_.assign(bytes, poison_byte(cache));
    v_.assign(bytes, poison_byte(cache));
    view_ = contiguous_kv_view({cache, kBlocks, kBlock, kHeads, kDim, kDim}, CacheLayout::nhd, k_.data(), v_.data());
  }

  /// Starts a request of `shared` tokens that all have and `own` that only it has, and fills its new slots.
  void add(std::int64_t shared, std::int64_t own) {
    const auto first_own = static_cast<TokenId>(1000 * (running_.size() + 1));
    running_.push_back(engine_.start(engines::operator+(engines::tokens(0, shared), engines::tokens(first_own, own))));
    const std::int64_t hit = engine_.prefill(running_.back());
    ASSERT_GE(hit, 0);
    hits_ += hit;
    const auto table = engine_->block_table(running_.back().sequence, GroupId{0});
    std::vector<std::int64_t> slots;
    for (std::int64_t j = hit; j < shared + own; ++j)
      slots.push_back(static_cast<std::int64_t>(table[static_cast<std::size_t>(j / kBlock)].value()) * kBlock +
                      j % kBlock);
    std::normal_distribution<float> normal;
    std::vector<float> rows(slots.size() * kHeads * kDim);
    for (float& value : rows) value = normal(rng_);
    const QueryRows fresh = dense_queries(rows.data(), DType::float32, kHeads, kDim);
    ASSERT_EQ(append(view_, {}, {fresh, fresh}, slots.data(), static_cast<std::int64_t>(slots.size())).value(), 0);
  }
  void finish(std::size_t i) {
    engine_->free(running_[i].sequence);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  [[nodiscard]] std::int64_t common() {
    return engine_->get_num_common_prefix_blocks(running_.front().sequence).front();
  }
  [[nodiscard]] std::int64_t hits() const { return hits_; }

  /// One decode step of all requests in one level by the reference and in two by the cpu backend.
  void expect_equal_levels(const LogitRules& rules = {}) {
    constexpr std::int64_t kColumns = 16;
    const auto count = running_.size();
    std::vector<std::int32_t> table(count * kColumns, -1);
    std::vector<std::int32_t> lens;
    for (std::size_t b = 0; b < count; ++b) {
      const auto blocks = engine_->block_table(running_[b].sequence, GroupId{0});
      for (std::size_t i = 0; i < blocks.size(); ++i)
        table[b * kColumns + i] = static_cast<std::int32_t>(blocks[i].value());
      lens.push_back(static_cast<std::int32_t>(running_[b].request.num_tokens()));
    }
    std::normal_distribution<float> normal;
    std::vector<float> q(count * kHeads * kGroup * kDim);
    for (float& value : q) value = normal(rng_);
    const AttentionProblem problem{kHeads * kGroup, kHeads, kDim, kDim, kBlock, 0, 0};
    std::vector<float> want(q.size());
    std::vector<float> got(q.size());
    std::vector<float> want_lse(q.size() / kDim);
    std::vector<float> got_lse(q.size() / kDim);
    AttentionArgs args;
    args.kv = view_;
    args.table = {table.data(), kColumns, kColumns};
    args.q = dense_queries(q.data(), DType::float32, kHeads * kGroup, kDim);
    args.rules = rules;
    args.out = dense_output(want.data(), DType::float32, kHeads * kGroup, kDim);
    args.lse = want_lse.data();
    ASSERT_TRUE(paged_attention(problem, lens, {}, args, kReference).ok());
    args.out = dense_output(got.data(), DType::float32, kHeads * kGroup, kDim);
    args.lse = got_lse.data();
    const Status status = cascade_attention(problem, lens, {}, common(), args);
    ASSERT_TRUE(status.ok()) << status.error().message;
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5F) << i;
    for (std::size_t i = 0; i < got_lse.size(); ++i) ASSERT_NEAR(got_lse[i], want_lse[i], 1e-5F) << i;
  }

 private:
  static engines::EngineOptions options() {
    engines::EngineOptions options;
    options.num_blocks = kBlocks;
    options.groups = {engines::full(kBlock)};
    return options;
  }

  engines::Engine engine_;
  std::vector<unsigned char> k_;
  std::vector<unsigned char> v_;
  PagedKvView view_;
  std::vector<engines::Running> running_;
  std::int64_t hits_ = 0;
  std::mt19937 rng_{3};
};

TEST(CommonPrefixCascade, TheManagersCountGivesTheResultsOfOneLevel) {
  for (const DType cache : {DType::float32, DType::bfloat16}) {
    SharedStep step(cache);
    step.add(96, 5);
    EXPECT_EQ(step.common(), 7) << "a single request has all of its blocks in common with itself";
    step.expect_equal_levels();
    step.add(96, 33);
    step.add(70, 40);
    step.add(96, 17);
    EXPECT_GT(step.hits(), 0) << "nothing was shared";
    EXPECT_EQ(step.common(), 4) << "70 tokens are four whole blocks";
    step.expect_equal_levels();
    const std::vector<float> sinks = {0.5F, 1, -1, 2, 0, 0.25F, 3, -2};
    LogitRules rules;
    rules.sinks = sinks;
    step.expect_equal_levels(rules);
    step.finish(2);
    EXPECT_EQ(step.common(), 6) << "the short one has left";
    step.expect_equal_levels();
    step.add(0, 20);
    EXPECT_EQ(step.common(), 0);
    step.expect_equal_levels();
  }
}

class Cascade : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Outputs, Cascade, testing::Values(DType::float32, DType::float16, DType::bfloat16),
                         [](const auto& param) { return std::string(to_string(param.param)); });

AttentionCase chunks_behind_a_prefix(DType out) {
  CaseSpec spec;
  spec.out = out;
  spec.seq_lens = {0, 90, 64 + 16, 64 + 33};
  spec.q_lens = {0, 20, 1, 33};
  spec.sinks = true;
  AttentionCase c(spec);
  for (std::size_t b = 2; b < spec.seq_lens.size(); ++b)
    std::copy_n(c.table.begin() + c.columns, 4, c.table.begin() + static_cast<std::ptrdiff_t>(b) * c.columns);
  return c;
}

Output run_cascade(const AttentionCase& c, std::int64_t pages, const ExecOptions& exec) {
  Output got = run_case(c, kReference);  // for its size
  std::fill(got.bytes.begin(), got.bytes.end(), 0xEE);
  got.status =
      cascade_attention(c.problem(), c.spec.seq_lens, c.cu_q, pages, c.args(got.bytes.data(), got.lse.data()), exec);
  return got;
}

TEST_P(Cascade, ChunksOfPromptsAndEveryCountOfPages) {
  const AttentionCase c = chunks_behind_a_prefix(GetParam());
  const Output want = run_case(c, kReference);
  const double tolerance = GetParam() == DType::float32 ? 1e-5 : GetParam() == DType::float16 ? 1e-3 : 3e-3;
  for (const Backend backend : {Backend::reference, Backend::cpu}) {
    for (const std::int64_t pages : {0, 1, 3, 4, 1000}) {  // more than there are before the queries: those are used
      const Output got = run_cascade(c, pages, {backend, {}, 1, 0, nullptr});
      ASSERT_TRUE(got.status.ok()) << got.status.error().message;
      const Difference d = difference(c, got, want);
      EXPECT_LE(d.rel_l2, tolerance);
      EXPECT_LE(d.lse, 1e-5);
    }
  }
}

TEST(CascadeRefusals, NameWhatIsNotSharedAndLeaveTheResultAlone) {
  AttentionCase c = chunks_behind_a_prefix(DType::float32);
  std::swap(c.table[static_cast<std::size_t>(2 * c.columns)], c.table[static_cast<std::size_t>(2 * c.columns) + 1]);
  const auto refused = [&](std::int64_t pages, const ExecOptions& exec, const char* word, ErrorCode code) {
    const Output got = run_cascade(c, pages, exec);
    ASSERT_FALSE(got.status.ok());
    EXPECT_EQ(got.status.error().code, code);
    EXPECT_NE(got.status.error().message.find(word), std::string::npos) << got.status.error().message;
    EXPECT_TRUE(std::all_of(got.bytes.begin(), got.bytes.end(), [](unsigned char b) { return b == 0xEE; }));
  };
  refused(4, {}, "sequence 2", ErrorCode::invalid_argument);
  refused(-1, {}, "prefix_pages", ErrorCode::invalid_argument);
  refused(4, {Backend::cuda, {}, 0, 0, nullptr}, "cuda", ErrorCode::unsupported);
}

TEST(CascadeRules, WindowAndAlibiAreComputedInOneLevel) {
  for (const bool alibi : {false, true}) {
    AttentionCase c = chunks_behind_a_prefix(DType::float32);
    c.spec.window = alibi ? 0 : 30;
    if (alibi) c.slopes.assign(8, 0.2F);
    const Output got = run_cascade(c, 4, {});
    ASSERT_TRUE(got.status.ok());
    EXPECT_LE(difference(c, got, run_case(c, kReference)).rel_l2, 1e-5);
  }
}

}  // namespace
}  // namespace kvpool::kernels::test
