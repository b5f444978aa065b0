#include "tools/launch/driver/serve.hpp"

#include <chrono>
#include <memory>
#include <utility>

#include "kvpool/config/block_sizes.hpp"
#include "kvpool/config/memory_plan.hpp"
#include "kvpool/manager/kv_cache_manager.hpp"
#include "tools/launch/driver/step_builder.hpp"
#include "tools/scheduler/continuous_scheduler.hpp"

namespace kvpool::launch {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Core {
  std::unique_ptr<KVCacheManager> manager;
  std::shared_ptr<const RequestHashing> hashing;
  std::vector<std::int64_t> block_sizes;
};

Result<Core> make_core(const LaunchOptions& options, const KVCacheConfig& config, const Workload& workload) {
  const KVCacheConfig ranks[] = {config};
  auto scheduler_config = generate_scheduler_kv_cache_config(ranks);
  if (!scheduler_config.ok()) return scheduler_config.error();
  BlockSizeOptions sizes_options;
  sizes_options.cache_block_size = options.block_size;
  const auto sizes = resolve_block_sizes(scheduler_config->groups, sizes_options);
  if (!sizes.ok()) return sizes.error();
  KVCacheManagerOptions manager_options;
  manager_options.max_model_len = workload.max_length();
  manager_options.scheduler_block_size = sizes->scheduler_block_size;
  manager_options.hash_block_size = sizes->hash_block_size;
  manager_options.max_in_flight_tokens = options.step_tokens;
  Core core;
  for (const KVCacheGroup& group : scheduler_config->groups) core.block_sizes.push_back(block_size(group.spec));
  auto manager = KVCacheManager::create(*std::move(scheduler_config), manager_options);
  if (!manager.ok()) return manager.error();
  core.manager = *std::move(manager);
  const std::string seed = BlockHasher::default_seed(HashAlgorithm::sha256, std::nullopt);
  core.hashing = std::make_shared<const RequestHashing>(
      RequestHashing{BlockHasher(HashAlgorithm::sha256, seed), sizes->hash_block_size});
  return core;
}

/// The loop of rank 0; members in the order in which they come to be.
class Driver {
 public:
  Driver(const LaunchOptions& options, PoolKeeper& pool, const Workload& workload, RankStep& step,
         Communicator& communicator, OutputLog& log, const ServeHooks& hooks, ServeResult& result)
      : options_(options),
        pool_(pool),
        workload_(workload),
        step_(step),
        communicator_(communicator),
        log_(log),
        hooks_(hooks),
        result_(result) {}

  [[nodiscard]] Status run() {
    auto core = make_core(options_, pool_.config(), workload_);
    if (!core.ok()) return core.status();
    core_ = *std::move(core);
    scheduler::SchedulerOptions scheduler_options;
    scheduler_options.num_threads = options_.schedulers;
    scheduler_options.token_budget = options_.step_tokens;
    scheduler_options.max_running = options_.max_running;
    scheduler::ContinuousScheduler scheduler(*core_.manager, workload_, core_.hashing, workload_.items(),
                                             scheduler_options);
    StepBuilder builder(core_.block_sizes);
    hooks_.started(static_cast<std::int64_t>(workload_.items().size()));
    const auto start = Clock::now();
    Status status;
    bool more = true;
    while (status.ok() && more) status = one_step(scheduler, builder, more);
    if (status.ok()) status = compare_tables();
    result_.seconds = seconds_since(start);
    summarise(scheduler);
    return status;
  }

 private:
  /// `more` becomes false when there is nothing left to do.
  [[nodiscard]] Status one_step(scheduler::ContinuousScheduler& scheduler, StepBuilder& builder, bool& more) {
    const auto schedule_start = Clock::now();
    result_.interrupted = hooks_.interrupted();
    more = !result_.interrupted;
    if (!more) return {};
    auto batch = scheduler.next_step();
    if (!batch.ok()) return batch.status();
    for (const std::int64_t request : batch->finished) log_.finish(request);
    hooks_.requests_finished(static_cast<std::int64_t>(batch->finished.size()));
    more = !batch->sequences.empty();
    if (!more) return {};
    const StepMessage message = builder.build(*batch, static_cast<std::uint64_t>(result_.steps));
    result_.schedule_seconds += seconds_since(schedule_start);
    const auto broadcast_start = Clock::now();
    Bytes bytes = encode(message);
    if (Status status = communicator_.broadcast(bytes, 0, options_.timeout()); !status.ok()) return status;
    broadcast_seconds_ += seconds_since(broadcast_start);
    if (Status status = step_.run(message, outputs_); !status.ok()) return status;
    log_.add(message, outputs_);
    ++result_.steps;
    return step_.agreement_wishes().empty() ? Status{} : agree_again(scheduler);
  }

  /// A pool of another size starts empty: what runs is preempted and admitted again.
  [[nodiscard]] Status agree_again(scheduler::ContinuousScheduler& scheduler) {
    const auto changed = pool_.agree_again();
    if (!changed.ok()) return changed.status();
    if (!*changed) return {};
    auto core = make_core(options_, pool_.config(), workload_);
    if (!core.ok()) return core.status();
    if (Status status = scheduler.move_to(*core->manager); !status.ok()) return status;
    evictions_before_ += core_.manager->pool().stats().evicted_blocks;
    core_ = *std::move(core);
    step_.pool_changed(pool_.config().num_blocks);
    return {};
  }

  /// What the last steps changed, which the regular comparison has not seen.
  [[nodiscard]] Status compare_tables() {
    if (Status status = tell(StepKind::compare, communicator_, options_.timeout()); !status.ok()) return status;
    return step_.compare_tables();
  }

  void summarise(const scheduler::ContinuousScheduler& scheduler) {
    result_.attention_seconds = step_.times().attention;
    result_.projection_seconds = step_.times().projection;
    result_.communication_seconds = broadcast_seconds_ + step_.times().communication + step_.gather_seconds();
    result_.table_seconds = step_.table_seconds();
    result_.counters = scheduler.counters();
    result_.refusals = scheduler.refusals();
    result_.evictions = evictions_before_ + core_.manager->pool().stats().evicted_blocks;
    result_.output_digest = log_.digest();
    result_.divergence_checks = step_.divergence_checks();
    result_.alarms = step_.alarms();
  }

  const LaunchOptions& options_;
  PoolKeeper& pool_;
  const Workload& workload_;
  RankStep& step_;
  Communicator& communicator_;
  OutputLog& log_;
  const ServeHooks& hooks_;
  ServeResult& result_;
  Core core_;
  GatheredOutputs outputs_;
  double broadcast_seconds_ = 0;
  std::uint64_t evictions_before_ = 0;
};

}  // namespace

Status tell(StepKind kind, Communicator& communicator, Timeout deadline) {
  StepMessage message;
  message.kind = kind;
  Bytes bytes = encode(message);
  return communicator.broadcast(bytes, 0, deadline);
}

Status serve_as_driver(const LaunchOptions& options, PoolKeeper& pool, const Workload& workload, RankStep& step,
                       Communicator& communicator, OutputLog& log, const ServeHooks& hooks, ServeResult& result) {
  return Driver(options, pool, workload, step, communicator, log, hooks, result).run();
}

Status serve_as_follower(RankStep& step, PoolKeeper& pool, Communicator& communicator, Timeout deadline) {
  GatheredOutputs unused;
  Bytes bytes;
  while (true) {
    if (Status status = communicator.broadcast(bytes, 0, deadline); !status.ok()) return status;
    const auto message = decode_step(bytes);
    if (!message.ok()) return {message.error().code, message.error().message, 0};
    if (message->kind == StepKind::finish) return {};
    if (message->kind == StepKind::hold) continue;
    if (message->kind == StepKind::compare) {
      if (Status status = step.compare_tables(); !status.ok()) return status;
      continue;
    }
    if (Status status = step.run(*message, unused); !status.ok()) return status;
    if (step.agreement_wishes().empty()) continue;
    const auto changed = pool.agree_again();
    if (!changed.ok()) return changed.status();
    if (*changed) step.pool_changed(pool.config().num_blocks);
  }
}

}  // namespace kvpool::launch
