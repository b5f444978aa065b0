// `kvpool launch`: finds out which ranks there are, runs them, prints what came of it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kvpool/kernels/backend.hpp"
#include "kvpool/multigpu/mpi_communicator.hpp"
#include "kvpool/multigpu/nccl_communicator.hpp"
#include "kvpool/multigpu/tcp_communicator.hpp"
#include "kvpool/multigpu/thread_communicator.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/progress.hpp"
#include "tools/launch/launch_options.hpp"
#include "tools/launch/rank/compute_device.hpp"
#include "tools/launch/rank_main.hpp"
#include "tools/launch/report.hpp"

namespace kvpool::launch {
namespace {

constexpr const char* kName = "launch";

std::optional<std::string> environment_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

/// Empty until serving starts. Used by rank 0's thread only.
using ProgressBar = std::optional<tools::Progress>;

ServeHooks make_hooks(ProgressBar& progress) {
  ServeHooks hooks;
  hooks.started = [&progress](std::int64_t requests) {
    progress.emplace("launch", "requests", static_cast<std::uint64_t>(requests));
  };
  hooks.interrupted = [] { return tools::interrupt_requested(); };
  hooks.requests_finished = [&progress](std::int64_t count) { progress->advance(static_cast<std::uint64_t>(count)); };
  return hooks;
}

/// Prints this rank's part of the outcome and answers its exit status.
int conclude(const LaunchOptions& options, int rank, const RankOutcome& outcome) {
  int status = tools::kExitOk;
  if (outcome.report) {
    if (options.json) {
      tools::print_json(to_json(options, *outcome.report));
    } else {
      std::fputs(to_table(options, *outcome.report).c_str(), stdout);
      std::fflush(stdout);
    }
    status = exit_status_of(*outcome.report);
    for (const scheduler::Refusal& refusal : outcome.report->serve.refusals) {
      tools::fail(kName, options.trace + ": " + refusal.reason, status);
    }
    for (const std::string& alarm : outcome.report->serve.alarms) {
      tools::fail(kName, "block tables differ: " + alarm, status);
    }
  }
  if (outcome.error) {
    status = tools::exit_status_of(outcome.error->code);
    const bool told_by_rank_0 = outcome.common_input_error && rank != 0;
    const std::string who = outcome.common_input_error ? "" : fmt::format("rank {}: ", rank);
    const std::string done = outcome.steps > 0 ? fmt::format(" (after {} steps on this rank)", outcome.steps) : "";
    if (!told_by_rank_0) tools::fail(kName, who + outcome.error->message + done, status);
  }
  const bool followed = !outcome.report && !outcome.error;
  return followed && tools::interrupt_requested() ? tools::kExitInterrupted : status;
}

/// Runs a rank over `control`, or over NCCL that is set up through it. Its device is number `local_rank` of the host.
RankOutcome run_rank_on(const LaunchOptions& options, Communicator& control, RankEnvironment environment,
                        int local_rank, const ServeHooks& hooks) {
  if (options.wants_device()) environment.device = open_cuda_device(local_rank);
  if (options.transport != "nccl") return run_rank(options, control, environment, hooks);
  auto nccl = make_nccl_communicator(control, local_rank, options.timeout());
  if (!nccl.ok()) return {nccl.error(), false, std::nullopt, 0};
  environment.transport = "nccl over " + environment.transport;
  return run_rank(options, **nccl, environment, hooks);
}

int run_threads(const LaunchOptions& options, int world_size) {
  auto communicators = make_thread_communicators(world_size);
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(world_size));
  {
    ProgressBar progress;
    const ServeHooks hooks = make_hooks(progress);
    const RankEnvironment environment{"threads", world_size};
    std::vector<std::thread> ranks;
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        outcomes[rank] = run_rank_on(options, *communicators[rank], environment, static_cast<int>(rank), hooks);
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
  int status = tools::kExitOk;
  for (std::size_t rank = outcomes.size(); rank > 0; --rank) {
    const int mine = conclude(options, static_cast<int>(rank - 1), outcomes[rank - 1]);
    if (mine != tools::kExitOk) status = mine;
  }
  return status;
}

/// This process is one of several ranks.
int run_process(const LaunchOptions& options, const std::optional<LauncherPlace>& place, const std::string& transport,
                const Result<std::unique_ptr<Communicator>>& communicator) {
  if (!communicator.ok()) {
    return tools::fail(kName, communicator.error().message, tools::exit_status_of(communicator.error().code));
  }
  Communicator& ranks = **communicator;
  RankOutcome outcome;
  {
    ProgressBar progress;
    const RankEnvironment environment{transport, place && place->local_size ? *place->local_size : ranks.world_size()};
    const int local_rank = place && place->local_rank ? *place->local_rank : ranks.rank();
    outcome = run_rank_on(options, ranks, environment, local_rank, make_hooks(progress));
  }
  const int status = conclude(options, ranks.rank(), outcome);
  if (ranks.failure() && status == kExitStatusEnvironment) exit_after_rank_failure();
  return status;
}

/// Without MPI: rank and world are what the launcher says, or the options.
int run_tcp(const LaunchOptions& options, const std::optional<LauncherPlace>& place) {
  const auto meeting = parse_meeting_place(options.meet);
  if (!meeting.ok()) return tools::fail(kName, meeting.error().message, tools::kExitBadInput);
  const std::optional<int> rank = options.rank ? options.rank : place ? std::optional(place->rank) : std::nullopt;
  const std::optional<int> world = options.world_size ? options.world_size
                                   : place            ? std::optional(place->world_size)
                                                      : std::nullopt;
  if (!rank || !world || *rank >= *world) {
    return tools::fail(kName,
                       rank && world ? fmt::format("--rank {} of --ranks {}", *rank, *world)
                                     : "--transport tcp: no launcher says which rank this is; --rank and --ranks do",
                       tools::kExitBadInput);
  }
  return run_process(options, place, "tcp", make_tcp_communicator(*meeting, *rank, *world, options.timeout()));
}

/// Without a device nothing starts: said before any rank waits for another.
Status check_device(const LaunchOptions& options) {
  if (!options.wants_device()) return {};
  const std::string what = options.transport == "nccl" ? "--transport nccl" : "--backend cuda";
  if (Status status = kernels::backend_available(kernels::Backend::cuda); !status.ok()) {
    return {ErrorCode::environment, what + ": " + status.error().message};
  }
  if (options.transport == "nccl" && !built_with_nccl()) {
    return {ErrorCode::environment, what + ": kvpool was built without NCCL"};
  }
  return {};
}

int run(const LaunchOptions& options) {
  if (Status status = check_device(options); !status.ok()) {
    return tools::fail(kName, status.error().message, tools::exit_status_of(status.error().code));
  }
  const auto place = read_launcher_place(environment_variable);
  if (!place.ok()) return tools::fail(kName, place.error().message, tools::exit_status_of(place.error().code));
  std::string transport = options.transport;
  if (!options.meet.empty()) transport = "tcp";
  if (transport == "auto" || transport == "nccl") transport = options.ranks_as_threads || !*place ? "threads" : "mpi";
  const tools::InterruptGuard guard;
  if (transport == "tcp") return run_tcp(options, *place);
  if (transport == "mpi") {
    return run_process(options, *place, "mpi", make_mpi_communicator(*place, options.timeout()));
  }
  const int world_size = options.ranks_as_threads.value_or(1);
  if (Status status = check_launcher(*place, 1); !status.ok()) {
    return tools::fail(kName, status.error().message, tools::exit_status_of(status.error().code));
  }
  return run_threads(options, world_size);
}

}  // namespace
}  // namespace kvpool::launch

namespace kvpool::tools {

void add_launch_command(CLI::App& app, int& exit_status);

void add_launch_command(CLI::App& app, int& exit_status) {
  CLI::App& command = *app.add_subcommand("launch", "Run a request trace through the whole system on several ranks");
  auto options = std::make_shared<launch::LaunchOptions>();
  launch::add_options(command, *options);
  command.callback([options, &exit_status] { exit_status = launch::run(*options); });
}

}  // namespace kvpool::tools
