// kvpool bench: the figures of the README, kvpool and its rivals in the same run.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <thread>

#include "tools/bench/families.hpp"
#include "tools/bench/machine.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/json_output.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/quantity.hpp"

namespace kvpool::tools {
namespace {

constexpr const char* kExample = R"(Example:
  kvpool bench --filter '^prefix$' --threads 2,8 --seconds 0.5
measures the throughput of the workload `prefix` with 2 and 8 threads, kvpool and the rivals lean, spin, std and card
by turns, five times half a second each. A run during which other processes took more than 6 % of the processors is
repeated, at most five times; a row that stayed disturbed is marked, and the status is 3.
`--filter requests` measures all rows of the family `requests`; a filter that matches nothing lists the families.)";

constexpr double kSmokeSeconds = 0.005;

struct BenchOptions {
  std::string filter = ".*";
  std::vector<unsigned> threads{1, 2, 8, 32};
  std::chrono::nanoseconds seconds = std::chrono::milliseconds(300);
  bool smoke = false;
  bool json = false;
};

/// A second thread that does nothing: the C library's locks are cheaper while a process has only one.
class IdleThread {
 public:
  IdleThread() : thread_([done = done_.get_future()]() mutable { done.wait(); }) {}
  ~IdleThread() {
    done_.set_value();
    thread_.join();
  }
  IdleThread(const IdleThread&) = delete;
  IdleThread& operator=(const IdleThread&) = delete;

 private:
  std::promise<void> done_;
  std::thread thread_;
};

struct Family {
  const char* name;
  void (*measure)(const BenchPlan& plan);
};

constexpr std::array kFamilies{Family{"single_thread", bench_single_thread},
                               Family{"throughput", bench_prefix_throughput},
                               Family{"latency", bench_prefix_latency},
                               Family{"situations", bench_situations},
                               Family{"index", bench_index},
                               Family{"growth", bench_growth},
                               Family{"requests", bench_requests},
                               Family{"hashing", bench_hashing},
                               Family{"attention", bench_attention},
                               Family{"attention_copies", bench_attention_copies},
                               Family{"ranks", bench_ranks}};

std::string no_match(const std::string& filter) {
  std::string message = "--filter: neither a row nor a family matches '" + filter + "'; families:";
  for (const Family& family : kFamilies) {
    message += " ";
    message += family.name;
  }
  return message;
}

int run(const BenchOptions& options) {
  const auto unfit = unfit_build();
  if (unfit && !options.smoke) {
    return fail("bench", *unfit, kExitEnvironment);
  }
  BenchReport report(!options.json, !unfit.has_value());
  BenchPlan plan;
  plan.threads = options.threads;
  plan.seconds = options.smoke ? kSmokeSeconds : std::chrono::duration<double>(options.seconds).count();
  plan.smoke = options.smoke;
  plan.report = &report;
  try {
    plan.filter = std::regex(options.filter);
  } catch (const std::regex_error&) {
    return fail("bench", "--filter: '" + options.filter + "' is no regular expression", kExitBadInput);
  }

  const InterruptGuard guard;
  const IdleThread idle;
  {
    std::optional<Progress> progress;
    if (options.json) {
      plan.progress = &progress.emplace("bench", "runs", 0);
    }
    for (const Family& family : kFamilies) {
      if (!interrupt_requested()) {
        plan.whole_family = std::regex_search(family.name, plan.filter);
        family.measure(plan);
      }
    }
    plan.progress = nullptr;
  }
  if (report.rows().empty() && !interrupt_requested()) {
    return fail("bench", no_match(options.filter), kExitBadInput);
  }
  if (options.json) {
    Json json{{"rows", report.to_json()}, {"machine", machine_json()}};
    if (interrupt_requested()) {
      json["interrupted"] = true;
    }
    print_json(json);
  }
  if (interrupt_requested()) {
    return kExitInterrupted;
  }
  if (!options.smoke && !report.reliable()) {
    return fail("bench", "other processes took more than 6 % of the processors during every try of some rows",
                kExitEnvironment);
  }
  return kExitOk;
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_status);

void add_bench_command(CLI::App& app, int& exit_status) {
  auto* command = app.add_subcommand("bench", "Measure kvpool and its rivals on this machine");
  auto options = std::make_shared<BenchOptions>();
  command->add_option("--filter", options->filter, "Regular expression for the names of rows and families")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Thread counts, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1U, 1'024U))
      ->capture_default_str();
  add_seconds_option(*command, "--seconds", options->seconds, std::chrono::milliseconds(1), std::chrono::hours(1),
                     "Length of one measured run, in seconds or as in 500ms; five runs make a row")
      ->default_str("300ms");
  command->add_flag("--smoke", options->smoke, "Run every row once, briefly, and judge nothing");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(kExample);
  command->callback([options, &exit_status] { exit_status = run(*options); });
}

}  // namespace kvpool::tools
