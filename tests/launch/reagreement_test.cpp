// Memory that changes while ranks serve: they agree again at a step boundary, and the outputs stay what they were.
#include <atomic>
#include <memory>
#include <thread>

#include "tests/launch/serve_harness.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/launch/report.hpp"

namespace kvpool::launch {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;
constexpr std::int64_t kTotal = 64 * kMiB;

/// A host whose free memory is what the test says, less what the workload's allocator holds.
class ShiftingProbe final : public MemoryProbe {
 public:
  ShiftingProbe(const std::atomic<std::int64_t>& free, CountingAllocator& allocator)
      : free_(free), allocator_(allocator) {}
  std::string device_name() const override { return "shifting"; }
  MemoryKind kind() const noexcept override { return MemoryKind::host; }
  MemoryReading read() override {
    MemoryReading reading;
    reading.runtime_total = kTotal;
    reading.runtime_free = free_.load() - allocator_.used();
    reading.own_process = allocator_.used();
    reading.pool_reserved = reading.pool_used = allocator_.used();
    reading.pool_reserved_peak = reading.pool_used_peak = allocator_.peak();
    return reading;
  }
  void reset_peaks() override { allocator_.reset_peak(); }

 private:
  const std::atomic<std::int64_t>& free_;
  CountingAllocator& allocator_;
};

/// The host, whose pools take no memory of what the probe calls free.
class PoolBesideFree final : public ComputeDevice {
 public:
  kernels::ExecOptions exec() const override { return host_->exec(); }
  std::string variant() const override { return host_->variant(); }
  MemoryKind memory() const noexcept override { return host_->memory(); }
  Result<DeviceMemory> allocate_pool(std::size_t bytes) override { return host_->allocate_pool(bytes); }
  std::size_t resident_bytes(const DeviceMemory& /*memory*/) const override { return 0; }
  Result<const void*> upload(Staging& staging, const void* host, std::size_t bytes) override {
    return host_->upload(staging, host, bytes);
  }
  Result<void*> place_for(Staging& staging, void* host, std::size_t bytes) override {
    return host_->place_for(staging, host, bytes);
  }
  Status download(void* host, const void* place, std::size_t bytes) override {
    return host_->download(host, place, bytes);
  }
  Status wait() override { return host_->wait(); }
  Result<std::unique_ptr<MemoryProbe>> make_probe(CountingAllocator& allocator, int ranks_on_host) override {
    return host_->make_probe(allocator, ranks_on_host);
  }

 private:
  std::shared_ptr<ComputeDevice> host_ = host_device();
};

/// Two ranks; rank 1's free memory goes from `before` to `after` once `requests` are finished.
std::vector<RankOutcome> run_with_shift(const LaunchOptions& options, std::int64_t before, std::int64_t after,
                                        std::int64_t requests, std::int64_t rank_0 = 48 * kMiB) {
  std::vector<std::atomic<std::int64_t>> free(2);
  free[0] = rank_0;
  free[1] = before;
  std::int64_t finished = 0;
  ServeHooks hooks = quiet_hooks();
  hooks.requests_finished = [&](std::int64_t count) {
    finished += count;
    if (finished >= requests) free[1] = after;
  };
  auto communicators = make_thread_communicators(2);
  std::vector<RankOutcome> outcomes(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      RankEnvironment environment{"threads", 2, std::shared_ptr<ComputeDevice>(std::make_shared<PoolBesideFree>())};
      environment.make_probe = [&free, rank](CountingAllocator& allocator) {
        return std::make_unique<ShiftingProbe>(free[rank], allocator);
      };
      outcomes[rank] = run_rank(options, *communicators[rank], environment, hooks);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

class ReagreementTest : public ServeTest {
 protected:
  [[nodiscard]] LaunchOptions options(int requests = 56) const {
    LaunchOptions options = small_options(requests);
    options.memory.reset();
    return options;
  }
  [[nodiscard]] LaunchReport expect_report(const std::vector<RankOutcome>& outcomes) const {
    for (const RankOutcome& outcome : outcomes) EXPECT_FALSE(outcome.error) << outcome.error->message;
    EXPECT_TRUE(outcomes[0].report);
    return outcomes[0].report ? *outcomes[0].report : LaunchReport{};
  }
};

TEST_F(ReagreementTest, ARankThatLosesMemoryShrinksThePoolOfAll) {
  const LaunchReport steady = expect_report(run_with_shift(options(), 40 * kMiB, 40 * kMiB, 0));
  ASSERT_EQ(steady.agreements.size(), 1U);
  const LaunchReport report = expect_report(run_with_shift(options(), 40 * kMiB, 3 * kMiB, 8));
  ASSERT_EQ(report.agreements.size(), 2U);
  EXPECT_EQ(report.agreements[0], steady.agreements[0]);
  EXPECT_LT(report.agreements[1], report.agreements[0] / 4);
  EXPECT_EQ(report.num_blocks(), report.agreements[1]);
  EXPECT_GT(report.serve.counters.preemptions, 0) << "what ran was preempted";
  EXPECT_EQ(report.serve.counters.finished, 56);
  EXPECT_TRUE(report.serve.refusals.empty());
  EXPECT_EQ(report.serve.output_digest, steady.serve.output_digest);
  EXPECT_TRUE(report.serve.alarms.empty());
}

TEST_F(ReagreementTest, TheSmallestRankThatGainsMemoryGrowsThePool) {
  const LaunchReport steady = expect_report(run_with_shift(options(), 40 * kMiB, 40 * kMiB, 0));
  const LaunchReport report = expect_report(run_with_shift(options(), 4 * kMiB, 40 * kMiB, 8));
  ASSERT_EQ(report.agreements.size(), 2U);
  EXPECT_GT(report.agreements[1], 4 * report.agreements[0]);
  EXPECT_EQ(report.serve.counters.finished, 56);
  EXPECT_EQ(report.serve.output_digest, steady.serve.output_digest);
  const tools::Json json = to_json(options(), report);
  EXPECT_EQ(json["agreements"].size(), 2U);
  EXPECT_NE(to_table(options(), report).find("agreed again"), std::string::npos);
}

TEST_F(ReagreementTest, MemoryThatIsOfNoUseToTheOthersChangesNothing) {
  // Rank 0 holds the others back, so that more memory on rank 1 brings nothing.
  const LaunchReport report = expect_report(run_with_shift(options(), 30 * kMiB, 44 * kMiB, 8, 12 * kMiB));
  EXPECT_EQ(report.agreements.size(), 1U);
  EXPECT_EQ(report.serve.counters.finished, 56);
}

TEST_F(ReagreementTest, ARankWithoutRoomForAnythingEndsAllByName) {
  const std::vector<RankOutcome> outcomes = run_with_shift(options(), 40 * kMiB, -kTotal, 8);
  for (const RankOutcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code, ErrorCode::out_of_memory);
    EXPECT_EQ(outcome.error->rank, 1) << outcome.error->message;
    EXPECT_GT(outcome.steps, 0);
  }
  ASSERT_TRUE(outcomes[0].report) << "rank 0 says how far it came";
  EXPECT_GT(outcomes[0].report->serve.counters.finished, 0);
  EXPECT_LT(outcomes[0].report->serve.counters.finished, 56);
  EXPECT_EQ(exit_status_of(*outcomes[0].report), tools::kExitEnvironment);
  EXPECT_EQ(to_json(options(), *outcomes[0].report)["error"]["rank"], 1);
}

/// One rank that cannot even begin to measure: all hear it in its own words, and nobody waits for a deadline.
TEST_F(ReagreementTest, ARankWithoutDeviceOrFiguresIsQuotedByAll) {
  for (const bool no_device : {true, false}) {
    auto communicators = make_thread_communicators(2);
    std::vector<RankOutcome> outcomes(2);
    std::vector<std::thread> threads;
    const LaunchOptions launch_options = options(4);
    const ServeHooks hooks = quiet_hooks();
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        RankEnvironment environment{"threads", 2};
        if (rank == 1 && no_device)
          environment.device = Error{ErrorCode::environment, "there is no CUDA device 1 here"};
        if (rank == 1 && !no_device) {
          environment.make_probe = [](CountingAllocator&) { return std::make_unique<ScriptedMemoryProbe>(); };
        }
        outcomes[rank] = run_rank(launch_options, *communicators[rank], environment, hooks);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    for (const RankOutcome& outcome : outcomes) {
      ASSERT_TRUE(outcome.error);
      EXPECT_EQ(outcome.error->code, ErrorCode::rank_failed);
      EXPECT_EQ(outcome.error->message.find("rank 1: profiling failed: "), 0U) << outcome.error->message;
      EXPECT_NE(outcome.error->message.find(no_device ? "no CUDA device 1" : "does not say how much memory"),
                std::string::npos)
          << outcome.error->message;
    }
  }
}

}  // namespace
}  // namespace kvpool::launch
