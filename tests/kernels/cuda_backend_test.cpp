// The cuda backend's host code, called as users call it, on two devices that live in host memory: which device is used,
// what moves between steps, what happens when the runtime refuses. Its kernels run in the executor.
#include <gtest/gtest.h>

#include "tests/kernels/fake_cuda/fake_device.hpp"
#include "tests/kernels/simt_attention.hpp"

namespace kvpool::kernels::test {
namespace {

ExecOptions on_device(int device = 0) {
  ExecOptions exec;
  exec.backend = Backend::cuda;
  exec.device = device;
  return exec;
}

/// Shapes of four and of eight query heads for a KV head: CUDA cores and tensor cores.
CaseSpec decode_spec(std::int64_t group) {
  CaseSpec spec;
  spec.cache = spec.query = DType::bfloat16;
  spec.dim = 64;
  spec.kv_heads = 1;
  spec.group = group;
  spec.seq_lens = {40, kSlow ? 70 : 200, 1};
  return spec;
}

class CudaBackend : public testing::Test {
 protected:
  void SetUp() override { devices().reset(); }
  void TearDown() override {
    EXPECT_EQ(devices().current, 0) << "the caller's device was left changed";
    EXPECT_TRUE(devices().live().empty()) << "device memory was left behind";
  }
  static FakeDevices& devices() { return FakeDevices::get(); }
  static void expect_all_calls_on(int device) {
    ASSERT_FALSE(devices().calls().empty());
    for (const auto& call : devices().calls()) EXPECT_EQ(call.device, device) << call.what;
  }
};

Output empty_output(const AttentionCase& c) {
  const auto rows = static_cast<std::size_t>(c.num_tokens() * c.spec.kv_heads * c.spec.group);
  Output output;
  output.bytes.assign(rows * static_cast<std::size_t>(c.dim_v * element_bytes(c.spec.out)), 0xFF);
  output.lse.assign(rows, -1);
  return output;
}

TEST_F(CudaBackend, ThePublicCallGivesTheReferencesResults) {
  for (const DType cache : {DType::float16, DType::bfloat16, DType::fp8_e4m3, DType::fp8_e5m2}) {
    for (const std::int64_t group : {1, 4, 8}) {
      CaseSpec spec = decode_spec(group);
      spec.cache = cache;
      spec.seq_lens = {0, 33};
      if (is_fp8(cache)) spec.k_scale = spec.v_scale = {0.04F};
      const AttentionCase c(spec);
      const Difference d = difference(c, run_case(c, on_device()), run_case(c, kReference));
      EXPECT_LE(d.rel_l2, group == 8 ? 4e-3 : 1e-6) << to_string(cache) << ", group " << group;
      EXPECT_LE(d.lse, 1e-5);
    }
    if (kSlow) break;
  }
}

TEST_F(CudaBackend, AnEmptyBatchLaunchesNothing) {
  CaseSpec spec = decode_spec(4);
  spec.seq_lens = {};
  EXPECT_TRUE(run_case(AttentionCase(spec), on_device()).status.ok());
  for (const auto& call : devices().calls()) EXPECT_TRUE(call.what == "allocate" || call.what == "free") << call.what;
}

/// What a captured graph holds are addresses and grids: a plan of fixed size changes neither.
TEST_F(CudaBackend, AReplayedGraphComputesTheStepThatWasPlannedLast) {
  for (const std::int64_t group : {4, 8}) {
    const AttentionCase c(decode_spec(group));
    Output out = empty_output(c);
    const AttentionArgs args = c.args(out.bytes.data(), out.lse.data());
    auto plan = AttentionPlan::reserve(c.problem(), {4, 8, 256}, on_device());
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    ASSERT_TRUE(plan->replan(c.spec.seq_lens, {}).ok());
    const auto arrays = devices().live();
    devices().begin_capture();
    ASSERT_TRUE(plan->run(args).ok());
    const auto graph = devices().end_capture();
    ASSERT_GE(graph.size(), 2U);
    const auto replayed = [&] {
      out.bytes.assign(out.bytes.size(), 0xFF);
      for (const auto& launch : graph) launch();
      return out;
    };
    Output launched[2];
    for (int batch = 0; batch < 2; ++batch) {
      std::vector<std::int32_t> lens = c.spec.seq_lens;
      if (batch == 1) lens = {20, 3, 1};
      ASSERT_TRUE(plan->replan(lens, {}).ok());
      EXPECT_EQ(devices().live(), arrays) << "an array has moved or changed its size";
      devices().forget_calls();
      const Output replay = replayed();
      ASSERT_TRUE(plan->run(args).ok());
      launched[batch] = out;
      EXPECT_EQ(replay.bytes, out.bytes) << "group " << group << ", batch " << batch;
      EXPECT_EQ(replay.lse, out.lse);
      AttentionCase same = c;
      same.spec.seq_lens = lens;
      EXPECT_LE(difference(same, replay, run_case(same, kReference)).rel_l2, group == 8 ? 4e-3 : 1e-6);
    }
    EXPECT_NE(launched[0].bytes, launched[1].bytes);
    EXPECT_EQ(plan->replan(std::vector<std::int32_t>{257}, {}).error().code, ErrorCode::invalid_argument);
  }
}

/// The test above could not fail if memory that moved were still read: a plan that is made anew moves it.
TEST_F(CudaBackend, AGraphOfAPlanWithoutFixedSizeIsLostWithTheNextPlan) {
  const AttentionCase c(decode_spec(4));
  Output out = empty_output(c);
  auto plan = AttentionPlan::make(c.problem(), c.spec.seq_lens, {}, on_device());
  ASSERT_TRUE(plan.ok());
  devices().begin_capture();
  ASSERT_TRUE(plan->run(c.args(out.bytes.data(), out.lse.data())).ok());
  const auto graph = devices().end_capture();
  ASSERT_TRUE(plan->replan(c.spec.seq_lens, {}).ok());
  for (const auto& launch : graph) launch();
  EXPECT_TRUE(std::all_of(out.bytes.begin(), out.bytes.end(), [](unsigned char byte) { return byte == 0xFF; }));
}

/// Pool and plan on device 1 while the caller's device is 0, in every function that touches a device.
TEST_F(CudaBackend, EverythingHappensOnTheDeviceOfThePool) {
  const AttentionCase c(decode_spec(4));
  Output out = empty_output(c);
  const AttentionArgs args = c.args(out.bytes.data(), out.lse.data());
  devices().mark(c.k_pool.data(), c.k_pool.size(), cudaMemoryTypeDevice);
  devices().mark(c.v_pool.data(), c.v_pool.size(), cudaMemoryTypeDevice);
  const ExecOptions exec = on_device(1);
  {
    auto plan = AttentionPlan::reserve(c.problem(), {4, 8, 256}, exec);
    ASSERT_TRUE(plan.ok() && plan->replan(c.spec.seq_lens, {}).ok() && plan->run(args).ok());
    EXPECT_EQ(devices().current, 0);
  }
  EXPECT_LE(difference(c, out, run_case(c, kReference)).rel_l2, 1e-6);
  const std::int64_t slot = 3;
  const NewRows rows{dense_queries(c.q.data(), DType::bfloat16, 1, 64),
                     dense_queries(c.q.data(), DType::bfloat16, 1, 64)};
  EXPECT_TRUE(append(c.view, {}, rows, &slot, 1, exec).ok());
  const PagedKvView layers[] = {c.view};
  const PagePair pairs[] = {{0, 1}};
  EXPECT_TRUE(copy_pages(layers, pairs, exec).ok());
  std::vector<std::uint16_t> dense(2 * 20 * 64);
  EXPECT_TRUE(gather(c.view, std::vector<std::int32_t>{0, 1}, 20, dense.data(), dense.data() + 20 * 64, exec).ok());
  std::vector<float> part(64, 1);
  std::vector<float> joined(64);
  const float lse = 0;
  float joined_lse = 0;
  EXPECT_TRUE(merge_attention(part.data(), &lse, part.data(), &lse, joined.data(), &joined_lse, 1, 64, exec).ok());
  expect_all_calls_on(1);
}

TEST_F(CudaBackend, ADeviceThatIsNotThereIsNamedAndNothingIsDone) {
  const AttentionCase c(decode_spec(4));
  const Output got = run_case(c, on_device(7));
  ASSERT_FALSE(got.status.ok());
  EXPECT_EQ(got.status.error().code, ErrorCode::environment);
  EXPECT_NE(got.status.error().message.find("invalid device"), std::string::npos) << got.status.error().message;
  EXPECT_TRUE(devices().calls().empty());
}

/// Whichever call of the runtime fails: an error that carries its words, no memory left, the caller's device back.
TEST_F(CudaBackend, EveryFailureOfTheRuntimeIsReportedAndCleanedUp) {
  const AttentionCase c(decode_spec(8));
  const ExecOptions exec = on_device(1);
  int failures = 0;
  for (int n = 1; n < 40; ++n) {
    devices().reset();
    devices().fail_at(n);
    const Output got = run_case(c, exec);
    EXPECT_EQ(devices().current, 0) << n;
    EXPECT_TRUE(devices().live().empty()) << n;
    if (got.status.ok()) break;
    ++failures;
    EXPECT_EQ(got.status.error().message.rfind("CUDA: ", 0), 0U) << got.status.error().message;
    const bool memory = devices().calls()[static_cast<std::size_t>(n - 1)].what == "allocate";
    EXPECT_EQ(got.status.error().code == ErrorCode::out_of_memory, memory) << got.status.error().message;
  }
  EXPECT_GE(failures, 8) << "arrays, uploads and launches of a step";
  EXPECT_LT(failures, 39) << "no run came to its end";
}

}  // namespace
}  // namespace kvpool::kernels::test
