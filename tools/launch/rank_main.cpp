#include "tools/launch/rank_main.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include "kvpool/config/kv_cache_groups.hpp"
#include "kvpool/config/layout_text.hpp"
#include "kvpool/config/memory_plan.hpp"
#include "kvpool/multigpu/rank_coordinator.hpp"
#include "tools/launch/driver/job.hpp"
#include "tools/launch/model/tiny_model.hpp"
#include "tools/launch/rank/agreed_storage.hpp"
#include "tools/launch/rank/profile_rank.hpp"

namespace kvpool::launch {
namespace {

constexpr std::int64_t kMinBlocks = 2;  // the placeholder and one that can be used
constexpr int kHoldsPerDeadline = 4;

ExecutorOptions executor_options(const LaunchOptions& options, const RankEnvironment& environment) {
  ExecutorOptions executor;
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
    auto job = share_job(options_, communicator_);
    if (!job.ok()) return {job.error(), !communicator_.failure().has_value(), std::nullopt};
    job_ = *std::move(job);
    if (Status status = prepare(); !status.ok()) return fail(status.error());
    return communicator_.rank() == 0 ? drive() : follow();
  }

 private:
  [[nodiscard]] RankOutcome fail(const Error& error) {
    if (!communicator_.failure()) communicator_.abort(error);
    return {error, false, std::nullopt};
  }

  /// Memory, agreement, storage, rank table.
  [[nodiscard]] Status prepare() {
    const auto slice = head_slice_of(job_.model.num_query_heads, job_.model.num_kv_heads, communicator_.rank(),
                                     communicator_.world_size());
    if (!slice.ok()) return slice.status();
    auto groups = get_kv_cache_groups(layer_specs(job_.model, *slice, options_.block_size));
    if (!groups.ok()) return groups.status();
    profile_.emplace(job_.model, *slice, profile_options(), executor_, communicator_);
    executor_.counter = &profile_->counter();
    auto memory = profile_->measure();
    const std::int64_t available = memory.ok() ? memory->available : 0;
    RankView view;
    view.profiling = memory.status();
    view.layout = canonical_layout(*groups, layout_context());
    view.limits = {available / bytes_per_block(*groups)};
    storage_.emplace(job_.model, *slice, *groups, available,
                     [this](std::int64_t bytes) { return profile_->verify_beside(bytes); });
    AgreementOptions agreement_options;
    agreement_options.deadline = options_.timeout();
    agreement_options.min_blocks = {kMinBlocks};
    RankCoordinator coordinator(communicator_, agreement_options);
    const auto agreement = coordinator.agree(view, *storage_);
    if (!agreement.ok()) return agreement.status();
    num_blocks_ = agreement->num_blocks[0];
    memory->num_blocks = view.limits[0];
    return collect_memory(*memory);
  }

  [[nodiscard]] ProfileOptions profile_options() const {
    ProfileOptions profile;
    profile.utilization = options_.utilization;
    profile.explicit_bytes = options_.memory;
    profile.block_size = options_.block_size;
    profile.max_step_tokens = options_.step_tokens;
    profile.ranks_on_host = environment_.ranks_on_host;
    return profile;
  }

  [[nodiscard]] LayoutContext layout_context() const {
    LayoutContext context;
    context.max_model_len = job_.max_length;
    context.scheduler_block_size = options_.block_size;
    context.hash_block_size = options_.block_size;
    context.block_order = "HND";
    return context;
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
    RankStep step(profile_->model(), storage_->storage(), communicator_, executor_);
    auto result = serve_as_driver(options_, storage_->config(), *job_.workload, step, communicator_, log, hooks_);
    if (!result.ok()) return fail(result.error());
    LaunchReport report;
    report.transport = environment_.transport;
    report.world_size = communicator_.world_size();
    report.model = job_.model;
    report.num_requests = static_cast<std::int64_t>(job_.workload->items().size());
    report.num_blocks = num_blocks_;
    report.ranks = memory_;
    report.serve = *std::move(result);
    std::optional<Error> error;
    if (options_.verify > 0 && !report.serve.interrupted) {
      auto verified = verify_while_others_wait(log);
      if (verified.ok()) {
        report.verify = *std::move(verified);
      } else {
        error = verified.error();
      }
    }
    if (!communicator_.failure()) {
      const Status told = send(StepKind::finish);
      if (!told.ok() && !error) error = told.error();
    }
    return {std::move(error), false, std::move(report)};
  }

  [[nodiscard]] Status send(StepKind kind) {
    StepMessage message;
    message.kind = kind;
    return tell(message, communicator_, options_.timeout());
  }

  /// The others wait for a message, so they get one long before their deadline passes.
  [[nodiscard]] Result<VerifyReport> verify_while_others_wait(const OutputLog& log) {
    auto verified = std::async(std::launch::async, [&] { return verify(log); });
    while (verified.wait_for(options_.deadline / kHoldsPerDeadline) != std::future_status::ready) {
      if (Status status = send(StepKind::hold); !status.ok()) {
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
    // Where the sum over ranks is added in another order than over heads, deeper layers differ in the last bits.
    options.bitwise_layers =
        sums_are_rank_independent(job_.model.num_query_heads, communicator_.world_size()) ? job_.model.num_layers : 1;
    return verify_samples(job_.model, *job_.workload, job_.workload->items(), log.samples(), options);
  }

  [[nodiscard]] RankOutcome follow() {
    RankStep step(profile_->model(), storage_->storage(), communicator_, executor_);
    if (Status status = serve_as_follower(step, communicator_, options_.timeout()); !status.ok()) {
      return fail(status.error());
    }
    return {};
  }

  const LaunchOptions& options_;
  Communicator& communicator_;
  const RankEnvironment& environment_;
  const ServeHooks& hooks_;
  ExecutorOptions executor_;
  Job job_;
  std::optional<RankProfile> profile_;
  std::optional<AgreedStorage> storage_;
  std::int64_t num_blocks_ = 0;
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
    return {error, false, std::nullopt};
  } catch (const std::exception& exception) {
    const Error error{ErrorCode::internal, exception.what(), communicator.rank()};
    communicator.abort(error);
    return {error, false, std::nullopt};
  }
}

}  // namespace kvpool::launch
