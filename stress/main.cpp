// kvpool_stress: threads race on one pool for a while; the seed comes first, the verdict last.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kvpool/pool/block_pool.hpp"
#include "stress/late_device.hpp"
#include "stress/ledger.hpp"
#include "stress/stall.hpp"
#include "stress/worker.hpp"

namespace kvpool::stress {
namespace {

struct Options {
  std::uint32_t threads = 4;
  std::uint32_t blocks = 512;
  double seconds = 10;
  std::uint64_t seed = 0;
  std::string workload = "mixed";
  bool stall = false;
};

int run(const Options& options) {
  std::printf("seed %" PRIu64 ", workload %s, %u threads, %u blocks, %g s%s\n", options.seed, options.workload.c_str(),
              options.threads, options.blocks, options.seconds, options.stall ? ", with suspended threads" : "");
  std::fflush(stdout);

  BlockPool pool({.num_blocks = options.blocks});
  Verdict verdict;
  Ledger ledger(options.blocks, verdict);
  LateDevice device;
  const bool fenced = options.workload == "fence";
  std::vector<Progress> progress(options.threads);
  std::atomic<bool> stop{false};
  const auto step = options.workload == "prefix"     ? &Worker::prefix_step
                    : options.workload == "pressure" ? &Worker::pressure_step
                    : fenced                         ? &Worker::fence_step
                                                     : &Worker::mixed_step;
  std::vector<std::thread> threads;
  std::vector<pthread_t> handles;
  for (std::uint32_t i = 0; i < options.threads; ++i) {
    threads.emplace_back([&, i] {
      Worker worker(pool, ledger, verdict, progress[i], fenced ? &device : nullptr, i, options.seed);
      while (!stop.load(std::memory_order_relaxed) && verdict.failures() == 0) (worker.*step)();
      worker.release_everything();
    });
    handles.push_back(threads.back().native_handle());
  }
  StallReport stalls;
  if (options.stall) {
    stalls = Staller(handles, progress, options.seed).run(options.seconds);
  } else {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
    while (std::chrono::steady_clock::now() < end && verdict.failures() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  stop.store(true, std::memory_order_relaxed);
  for (std::thread& thread : threads) thread.join();
  device.run_all(pool, ledger, verdict);

  if (const Status status = pool.check_invariants(); !status.ok()) verdict.fail(status.error().message);
  if (pool.num_free_blocks() != options.blocks - 1) {
    verdict.fail(std::to_string(options.blocks - 1 - pool.num_free_blocks()) + " blocks did not come back");
  }
  if (options.stall && stalls.frozen > 0) verdict.fail("a suspended thread stopped all others");

  std::uint64_t total = 0;
  std::printf("operations:");
  for (std::size_t kind = 0; kind < kOperations; ++kind) {
    std::uint64_t sum = 0;
    for (const Progress& one : progress) sum += one.completed[kind].load(std::memory_order_relaxed);
    total += sum;
    std::printf(" %s %" PRIu64, std::string(kOperationNames[kind]).c_str(), sum);
  }
  std::printf("\n");
  if (options.stall) std::printf("%s\n", to_text(stalls).c_str());
  const PoolStats stats = pool.stats();
  std::printf("evicted %" PRIu64 ", stolen %" PRIu64 ", lost pins %" PRIu64 ", rare paths: ring full %" PRIu64
              ", dead slots %" PRIu64 "\n",
              stats.evicted_blocks, stats.stolen_blocks, stats.lost_pins, stats.ring_full, stats.dead_slots);
  if (total == 0) verdict.fail("nothing was done");
  if (verdict.failures() > 0) {
    std::printf("FAILED: %s\n", verdict.first().c_str());
    return 1;
  }
  std::printf("ok: %" PRIu64 " operations, no violation\n", total);
  return 0;
}

}  // namespace
}  // namespace kvpool::stress

int main(int argc, char** argv) {
  kvpool::stress::Options options;
  options.seed = std::random_device{}();
  CLI::App app{
      "Races threads on one BlockPool and checks that nobody gets another's block.\n"
      "Example: kvpool_stress --threads 4 --blocks 512 --seconds 10 --seed 7 --workload prefix"};
  app.add_option("--threads", options.threads, "worker threads")->check(CLI::Range(1U, 256U));
  app.add_option("--blocks", options.blocks, "blocks in the pool, null block included")
      ->check(CLI::Range(2U, 1U << 24U));
  app.add_option("--seconds", options.seconds, "how long")->check(CLI::Range(0.01, 1e6));
  app.add_option("--seed", options.seed, "first random number; the default changes from run to run");
  app.add_option("--workload", options.workload, "mixed, prefix, pressure or fence")
      ->check(CLI::IsMember({"mixed", "prefix", "pressure", "fence"}));
  app.add_flag("--stall", options.stall, "suspend random threads for 100-300 ms at random instructions");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (options.stall && options.threads < 2) {
    std::fprintf(stderr, "kvpool_stress: --stall needs --threads 2 or more: somebody must go on\n");
    return 2;
  }
  return kvpool::stress::run(options);
}
