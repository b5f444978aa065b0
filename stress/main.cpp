// kvpool_stress: threads race on one pool for a while; the seed comes first, the verdict last.
#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <new>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "kvpool/pool/block_pool.hpp"
#include "stress/late_device.hpp"
#include "stress/ledger.hpp"
#include "stress/stall.hpp"
#include "stress/worker.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/quantity.hpp"

namespace kvpool::stress {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::uint32_t threads = 4;
  std::uint32_t blocks = 512;
  std::chrono::nanoseconds duration = std::chrono::seconds(10);
  std::uint64_t seed = 0;
  std::string workload = "mixed";
  bool stall = false;
};

double in_seconds(std::chrono::nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

/// When the run is over; meanwhile it shows on a terminal how far it is.
class Watch {
 public:
  Watch(std::chrono::nanoseconds duration, const Verdict& verdict)
      : verdict_(&verdict),
        begin_(Clock::now()),
        duration_(duration),
        bar_("stress", "s", static_cast<std::uint64_t>(in_seconds(duration))) {}

  [[nodiscard]] bool over() {
    const std::chrono::nanoseconds elapsed = Clock::now() - begin_;
    for (const auto whole = static_cast<std::uint64_t>(in_seconds(elapsed)); shown_ < whole; ++shown_) bar_.advance();
    return elapsed >= duration_ || verdict_->failures() > 0 || tools::interrupt_requested();
  }

 private:
  const Verdict* verdict_;
  Clock::time_point begin_;
  std::chrono::nanoseconds duration_;
  tools::Progress bar_;
  std::uint64_t shown_ = 0;  ///< seconds
};

/// Threads that repeat their step until they are told to stop, which happens at the end in any case.
class Team {
 public:
  Team() = default;
  ~Team() { stop(); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  template <class Body>
  void add(Body body) {
    threads_.emplace_back([this, body]() mutable { body(stop_); });
  }
  [[nodiscard]] std::vector<pthread_t> handles() {
    std::vector<pthread_t> handles;
    for (std::thread& thread : threads_) handles.push_back(thread.native_handle());
    return handles;
  }
  void stop() {
    stop_.store(true, std::memory_order_relaxed);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

std::uint64_t print_operations(const std::vector<Progress>& progress) {
  std::uint64_t total = 0;
  std::printf("operations:");
  for (std::size_t kind = 0; kind < kOperations; ++kind) {
    std::uint64_t sum = 0;
    for (const Progress& one : progress) sum += one.completed[kind].load(std::memory_order_relaxed);
    total += sum;
    std::printf(" %s %" PRIu64, std::string(kOperationNames[kind]).c_str(), sum);
  }
  std::printf("\n");
  return total;
}

struct Workload {
  void (Worker::*step)();
  Fencing fencing;
};

Workload workload_of(const std::string& name) {
  if (name == "prefix") return {&Worker::prefix_step, Fencing::never};
  if (name == "pressure") return {&Worker::pressure_step, Fencing::never};
  if (name == "fence") return {&Worker::fence_step, Fencing::always};
  return {&Worker::mixed_step, Fencing::sometimes};
}

/// Races until the watch says so; what was suspended meanwhile.
StallReport race(const Options& options, const Arena& arena, std::vector<Progress>& progress) {
  const Workload workload = workload_of(options.workload);
  Team team;
  for (std::uint32_t i = 0; i < options.threads; ++i) {
    team.add([&, i](const std::atomic<bool>& stop) {
      Worker worker(arena, progress[i], workload.fencing, i, options.seed);
      while (!stop.load(std::memory_order_relaxed) && arena.verdict.failures() == 0) (worker.*workload.step)();
      worker.release_everything();
    });
  }
  Watch watch(options.duration, arena.verdict);
  if (options.stall) return Staller(team.handles(), progress, options.seed).run([&watch] { return watch.over(); });
  while (!watch.over()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return {};
}

int run(const Options& options) {
  std::printf("seed %" PRIu64 ", workload %s, %u threads, %u blocks, %g s%s\n", options.seed, options.workload.c_str(),
              options.threads, options.blocks, in_seconds(options.duration),
              options.stall ? ", with suspended threads" : "");
  std::fflush(stdout);

  BlockPool pool({.num_blocks = options.blocks});
  Verdict verdict;
  Ledger ledger(options.blocks, verdict);
  LateDevice device(ledger, verdict);
  std::vector<Progress> progress(options.threads);
  const StallReport stalls = race(options, {pool, ledger, verdict, device}, progress);
  pool.advance_fence(device.execute_all().last);

  if (const Status status = pool.check_invariants(); !status.ok()) verdict.fail(status.error().message);
  // A fence lets a bounded number of blocks pass at once; an allocation that needs them all gets them all.
  if (!pool.try_reserve(options.blocks - 1)) verdict.fail("the last holder is gone, and not all blocks can be had");
  if (pool.num_free_blocks() != options.blocks - 1) {
    verdict.fail(std::to_string(options.blocks - 1 - pool.num_free_blocks()) + " blocks did not come back");
  }
  if (stalls.frozen > 0) verdict.fail("a suspended thread stopped all others");

  const std::uint64_t total = print_operations(progress);
  if (options.stall) std::printf("%s\n", to_text(stalls).c_str());
  const PoolStats stats = pool.stats();
  std::printf("evicted %" PRIu64 ", stolen %" PRIu64 ", lost pins %" PRIu64 ", rare paths: ring full %" PRIu64
              ", dead slots %" PRIu64 "\n",
              stats.evicted_blocks, stats.stolen_blocks, stats.lost_pins, stats.ring_full, stats.dead_slots);
  const bool interrupted = tools::interrupt_requested();
  if (total == 0 && !interrupted) verdict.fail("nothing was done");
  if (verdict.failures() > 0) {
    std::printf("FAILED: %s\n", verdict.first().c_str());
    return tools::kExitCheckFailed;
  }
  std::printf("%s: %" PRIu64 " operations, no violation\n", interrupted ? "interrupted" : "ok", total);
  return interrupted ? tools::kExitInterrupted : tools::kExitOk;
}

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, seed);
  if (result.ec != std::errc() || result.ptr != end) {
    throw CLI::ValidationError("--seed", "'" + text + "' is not a whole number below 2^64");
  }
  return seed;
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("--threads", options.threads, "worker threads")->check(CLI::Range(1U, 256U));
  app.add_option("--blocks", options.blocks, "blocks in the pool, null block included")
      ->check(CLI::Range(2U, 1U << 24U));
  tools::add_seconds_option(app, "--seconds", options.duration, std::chrono::milliseconds(10), std::chrono::hours(300),
                            "how long: seconds, or a duration as in 500ms");
  app.add_option_function<std::string>(
         "--seed", [&options](const std::string& text) { options.seed = parse_seed(text); },
         "first random number; the default changes from run to run")
      ->type_name("UINT");
  app.add_option("--workload", options.workload, "mixed, prefix, pressure or fence")
      ->check(CLI::IsMember({"mixed", "prefix", "pressure", "fence"}));
  app.add_flag("--stall", options.stall, "suspend random threads for 100-300 ms at random instructions");
}

int fail(const char* message, int status) {
  std::fflush(stdout);
  std::fprintf(stderr, "kvpool_stress: %s\n", message);
  return status;
}

int parse_and_run(int argc, char** argv) {
  Options options;
  options.seed = std::random_device{}();
  CLI::App app{
      "Races threads on one BlockPool and checks that nobody gets another's block.\n"
      "Example: kvpool_stress --threads 4 --blocks 512 --seconds 10 --seed 7 --workload prefix"};
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? tools::kExitOk : tools::kExitBadInput;
  }
  if (options.stall && options.threads < 2) {
    return fail("--stall needs --threads 2 or more: somebody must go on", tools::kExitBadInput);
  }
  const tools::InterruptGuard guard;
  return run(options);
}

}  // namespace
}  // namespace kvpool::stress

int main(int argc, char** argv) {
  try {
    return kvpool::stress::parse_and_run(argc, argv);
  } catch (const std::bad_alloc&) {
    return kvpool::stress::fail("not enough memory for that many blocks and threads", kvpool::tools::kExitEnvironment);
  } catch (const std::exception& error) {  // a thread that the system refuses, most likely
    return kvpool::stress::fail(error.what(), kvpool::tools::kExitEnvironment);
  }
}
