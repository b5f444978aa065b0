// Ranks as threads: how long an agreement takes, and what watching the block tables costs in a step.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "kvpool/multigpu/divergence_monitor.hpp"
#include "kvpool/multigpu/rank_coordinator.hpp"
#include "kvpool/multigpu/thread_communicator.hpp"
#include "tools/bench/attention_cache.hpp"
#include "tools/bench/families.hpp"

namespace kvpool::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAgreeingRanks = 8;
constexpr int kAgreementsPerRun = 9;
constexpr Timeout kDeadline{10'000};

constexpr std::uint32_t kSequences = 256;
constexpr std::uint32_t kBlockTokens = 16;
constexpr std::uint32_t kInterval = 32;
constexpr std::uint32_t kWatchedSteps = 64 * kInterval;
constexpr std::int64_t kContextTokens = 512;

/// Storage that has room for everything: the protocol is measured, not the allocation.
class RoomyStorage final : public KVStorage {
 public:
  Status allocate(std::span<const std::int64_t> /*num_blocks*/) override { return {}; }
  void release() noexcept override {}
  std::vector<std::int64_t> limits() override { return {1'000}; }
};

void on_ranks(int world, const std::function<void(Communicator&)>& body) {
  auto communicators = make_thread_communicators(world);
  std::vector<std::thread> threads;
  threads.reserve(communicators.size());
  for (auto& communicator : communicators) {
    threads.emplace_back([&body, &communicator] { body(*communicator); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

/// From the moment at which all ranks are ready to the return of the last one; empty when they did not agree.
std::optional<std::chrono::nanoseconds> one_agreement() {
  std::barrier ready(kAgreeingRanks);
  std::vector<Clock::time_point> start(kAgreeingRanks);
  std::vector<Clock::time_point> end(kAgreeingRanks);
  std::vector<char> agreed(kAgreeingRanks, 0);
  on_ranks(kAgreeingRanks, [&](Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const RankView view{{}, {}, {{"version", "1"}, {"group 0 kind", "full_attention"}}, {100 + communicator.rank()}};
    AgreementOptions options;
    options.deadline = kDeadline;
    RoomyStorage storage;
    ready.arrive_and_wait();
    start[rank] = Clock::now();
    const auto agreement = RankCoordinator(communicator, options).agree(view, storage);
    end[rank] = Clock::now();
    agreed[rank] = agreement.ok() && agreement->num_blocks == std::vector<std::int64_t>{100} ? 1 : 0;
  });
  if (std::count(agreed.begin(), agreed.end(), 1) != kAgreeingRanks) {
    return std::nullopt;
  }
  return *std::max_element(end.begin(), end.end()) - *std::min_element(start.begin(), start.end());
}

std::vector<Sample> agreements() {
  LatencyHistogram histogram;
  double agreed = 0;
  for (int i = 0; i < kAgreementsPerRun; ++i) {
    if (const auto took = one_agreement()) {
      histogram.record(*took);
      ++agreed;
    }
  }
  Sample sample;
  sample.latency_us = histogram.percentiles();
  sample.more = {
      {"agreed", agreed / kAgreementsPerRun}, {"median_ms", histogram.quantile(0.5) / 1e6}, {"floor", 50}, {"good", 5}};
  return {sample};
}

/// Seconds a step: a decode step of kSequences sequences changes one table in kBlockTokens.
double watching_seconds() {
  double seconds = 0;
  on_ranks(2, [&](Communicator& communicator) {
    DivergenceMonitor monitor(communicator, {kInterval, kDeadline, std::uint64_t{1} << 20U});
    const auto start = Clock::now();
    for (std::uint32_t step = 0; step < kWatchedSteps; ++step) {
      for (std::uint32_t i = 0; i < kSequences / kBlockTokens; ++i) {
        monitor.record({i, step, std::int64_t{step} * kBlockTokens + i});
      }
      if (const auto outcome = monitor.end_step(); !outcome || outcome->alarm) {
        return;
      }
    }
    if (communicator.rank() == 0) {
      seconds = std::chrono::duration<double>(Clock::now() - start).count() / kWatchedSteps;
    }
  });
  return seconds;
}

/// Seconds of attention in the same step: one layer, KV heads of one rank of eight.
double attention_seconds(AttentionCache& cache) {
  kernels::ExecOptions exec;
  exec.max_threads = 1;
  const auto start = Clock::now();
  cache.decode(exec, 1);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<Sample> watching(AttentionCache& cache) {
  const double watch = watching_seconds();
  const double step = attention_seconds(cache) + watch;
  Sample sample;
  sample.more = {{"us_per_step", watch * 1e6},
                 {"percent_of_step", 100 * watch / step},
                 {"step_us", step * 1e6},
                 {"floor", 2},
                 {"good", 0.5}};
  return {sample};
}

}  // namespace

void bench_ranks(const BenchPlan& plan) {
  std::vector<Contender> contenders;
  if (plan.wants("ranks_agreement")) {
    contenders.push_back({{"ranks_agreement"}, "kvpool", kAgreeingRanks, agreements});
  }
  if (plan.wants("ranks_watching")) {
    CacheShape shape;
    shape.sequences = kSequences;
    shape.length = kContextTokens;
    shape.kv_heads = 1;
    shape.layers = 1;
    const auto cache = std::make_shared<AttentionCache>(shape);
    contenders.push_back({{"ranks_watching"}, "kvpool", 2, [cache] { return watching(*cache); }});
  }
  for (BenchRow& row : interleave(plan, contenders)) {
    plan.report->add(std::move(row));
  }
}

}  // namespace kvpool::tools
