#include "tools/launch/rank_main.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include "tools/launch/driver/job.hpp"
#include "tools/launch/rank/rank_log.hpp"
#include "tools/launch/rank/rank_pool.hpp"

namespace kvpool::launch {
namespace {

constexpr int kHoldsPerDeadline = 4;

ExecutorOptions executor_options(const LaunchOptions& options, const RankEnvironment& environment) {
  ExecutorOptions executor;
  if (environment.device.ok()) executor.device = *environment.device;
  executor.exec = executor.device->exec();
  executor.fixed_split = kKeysPerSplit;
  executor.deadline = options.timeout();
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  executor.exec.max_threads = options.compute_threads > 0 ? options.compute_threads
                                                          : std::max(1, cores / std::max(1, environment.ranks_on_host));
  return executor;
}

/// One rank's run; members in the order in which they come to be.
class Rank {
 public:
  Rank(const LaunchOptions& options, Communicator& communicator, const RankEnvironment& environment,
       const ServeHooks& hooks)
      : options_(options),
        communicator_(communicator),
        environment_(environment),
        hooks_(hooks),
        executor_(executor_options(options, environment)) {}

  [[nodiscard]] RankOutcome run() {
    if (!options_.log_folder.empty()) {
      auto log = RankLog::open(options_.log_folder, communicator_.rank());
      if (!log.ok()) return fail(log.error());
      log_ = *std::move(log);
    }
    auto job = share_job(options_, communicator_);
    if (!job.ok()) return {job.error(), !communicator_.failure().has_value(), std::nullopt, 0};
    job_ = *std::move(job);
    if (Status status = prepare(); !status.ok()) return fail(status.error());
    RankOutcome outcome = communicator_.rank() == 0 ? drive() : follow();
    log_.write(fmt::format("{} steps executed, {}", outcome.steps,
                           outcome.error ? "ended by: " + outcome.error->message : std::string("done")));
    return outcome;
  }

 private:
  [[nodiscard]] RankOutcome fail(const Error& error) {
    log_.write("ended by: " + error.message);
    if (!communicator_.failure()) communicator_.abort(error);
    return {error, false, std::nullopt, 0};
  }

  /// Memory, agreement, storage, rank table.
  [[nodiscard]] Status prepare() {
    log_.write(fmt::format("rank {} of {} over {}, {} ranks on this host", communicator_.rank(),
                           communicator_.world_size(), environment_.transport, environment_.ranks_on_host));
    RankPoolOptions pool;
    pool.profile.utilization = options_.utilization;
    pool.profile.explicit_bytes = options_.memory;
    pool.profile.block_size = options_.block_size;
    pool.profile.max_step_tokens = options_.step_tokens;
    pool.profile.ranks_on_host = environment_.ranks_on_host;
    pool.profile.make_probe = environment_.make_probe;
    pool.max_model_len = job_.max_length;
    pool.deadline = options_.timeout();
    pool_.emplace(job_.model, executor_, std::move(pool), communicator_, log_);
    if (Status status = pool_->prepare(environment_.device.status()); !status.ok()) return status;
    executor_.counter = &pool_->counter();
    return collect_memory(pool_->memory());
  }

  [[nodiscard]] Status collect_memory(const RankMemory& mine) {
    const auto rows = communicator_.gather(encode(mine), 0, options_.timeout());
    if (!rows.ok()) return rows.status();
    for (std::size_t rank = 0; rank < rows->size(); ++rank) {
      auto row = decode_rank_memory((*rows)[rank], static_cast<int>(rank));
      if (!row.ok()) return row.status();
      memory_.push_back(*std::move(row));
    }
    return {};
  }

  [[nodiscard]] RankOutcome drive() {
    OutputLog log(static_cast<std::int64_t>(job_.workload->items().size()),
                  choose_samples(job_.workload->items(), options_.verify));
    RankStep step(pool_->model(), pool_->storage(), communicator_, executor_);
    step.watch_memory([this] { return pool_->memory_has_changed(); });
    LaunchReport report;
    const Status served =
        serve_as_driver(options_, *pool_, *job_.workload, step, communicator_, log, hooks_, report.serve);
    report.transport = environment_.transport;
    report.world_size = communicator_.world_size();
    report.model = job_.model;
    report.num_requests = static_cast<std::int64_t>(job_.workload->items().size());
    report.agreements = pool_->agreements();
    report.ranks = memory_;
    std::optional<Error> error;
    if (!served.ok()) {
      error = served.error();
    } else if (options_.verify > 0 && !report.serve.interrupted) {
      auto verified = verify_while_others_wait(log);
      if (verified.ok()) {
        report.verify = *std::move(verified);
        report.serve.interrupted = hooks_.interrupted();
      } else {
        error = verified.error();
      }
    }
    if (error && !communicator_.failure()) communicator_.abort(*error);
    if (!communicator_.failure()) {
      const Status told = tell(StepKind::finish, communicator_, options_.timeout());
      if (!told.ok() && !error) error = told.error();
    }
    report.error = error;
    return {std::move(error), false, std::move(report), step.steps()};
  }

  /// The others wait for a message, so they get one long before their deadline passes.
  [[nodiscard]] Result<VerifyReport> verify_while_others_wait(const OutputLog& log) {
    auto verified = std::async(std::launch::async, [&] { return verify(log); });
    while (verified.wait_for(options_.deadline / kHoldsPerDeadline) != std::future_status::ready) {
      if (Status status = tell(StepKind::hold, communicator_, options_.timeout()); !status.ok()) {
        verified.wait();
        return status.error();
      }
    }
    return verified.get();
  }

  [[nodiscard]] Result<VerifyReport> verify(const OutputLog& log) const {
    VerifyOptions options;
    options.block_size = options_.block_size;
    options.executor = executor_;
    options.interrupted = hooks_.interrupted;
    // Where the sum over ranks is added in another order than over heads, deeper layers differ in the last bits.
    const bool own_order = communicator_.sum_memory() == MemoryKind::device && communicator_.world_size() > 1;
    const bool same_tree = sums_are_rank_independent(job_.model.num_query_heads, communicator_.world_size());
    options.bitwise_layers = same_tree && !own_order ? job_.model.num_layers : 1;
    return verify_samples(job_.model, *job_.workload, job_.workload->items(), log.samples(), options);
  }

  [[nodiscard]] RankOutcome follow() {
    RankStep step(pool_->model(), pool_->storage(), communicator_, executor_);
    step.watch_memory([this] { return pool_->memory_has_changed(); });
    std::optional<Error> error;
    if (Status status = serve_as_follower(step, *pool_, communicator_, options_.timeout()); !status.ok()) {
      error = status.error();
      if (!communicator_.failure()) communicator_.abort(*error);
    }
    return {std::move(error), false, std::nullopt, step.steps()};
  }

  const LaunchOptions& options_;
  Communicator& communicator_;
  const RankEnvironment& environment_;
  const ServeHooks& hooks_;
  ExecutorOptions executor_;
  RankLog log_;
  Job job_;
  std::optional<RankPool> pool_;
  std::vector<RankMemory> memory_;
};

}  // namespace

RankOutcome run_rank(const LaunchOptions& options, Communicator& communicator, const RankEnvironment& environment,
                     const ServeHooks& hooks) {
  try {
    return Rank(options, communicator, environment, hooks).run();
  } catch (const std::bad_alloc&) {
    const Error error{ErrorCode::out_of_memory, fmt::format("rank {} is out of memory", communicator.rank()),
                      communicator.rank()};
    communicator.abort(error);
    return {error, false, std::nullopt, 0};
  } catch (const std::exception& exception) {
    const Error error{ErrorCode::internal, exception.what(), communicator.rank()};
    communicator.abort(error);
    return {error, false, std::nullopt, 0};
  }
}

}  // namespace kvpool::launch
