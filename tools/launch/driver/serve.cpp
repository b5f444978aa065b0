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

}  // namespace

Status tell(const StepMessage& message, Communicator& communicator, Timeout deadline) {
  Bytes bytes = encode(message);
  return communicator.broadcast(bytes, 0, deadline);
}

Result<ServeResult> serve_as_driver(const LaunchOptions& options, const KVCacheConfig& config, const Workload& workload,
                                    RankStep& step, Communicator& communicator, OutputLog& log,
                                    const ServeHooks& hooks) {
  auto core = make_core(options, config, workload);
  if (!core.ok()) return core.error();
  scheduler::SchedulerOptions scheduler_options;
  scheduler_options.num_threads = options.schedulers;
  scheduler_options.token_budget = options.step_tokens;
  scheduler_options.max_running = options.max_running;
  scheduler::ContinuousScheduler scheduler(*core->manager, workload, core->hashing, workload.items(),
                                           scheduler_options);
  StepBuilder builder(core->block_sizes);
  ServeResult result;
  GatheredOutputs outputs;
  double broadcast_seconds = 0;
  hooks.started(static_cast<std::int64_t>(workload.items().size()));
  const auto start = Clock::now();
  while (true) {
    const auto schedule_start = Clock::now();
    result.interrupted = hooks.interrupted();
    if (result.interrupted) break;
    auto batch = scheduler.next_step();
    if (!batch.ok()) return batch.error();
    for (const std::int64_t request : batch->finished) log.finish(request);
    hooks.requests_finished(static_cast<std::int64_t>(batch->finished.size()));
    if (batch->sequences.empty()) break;
    const StepMessage message = builder.build(*batch, static_cast<std::uint64_t>(result.steps));
    result.schedule_seconds += seconds_since(schedule_start);
    const auto broadcast_start = Clock::now();
    if (Status status = tell(message, communicator, options.timeout()); !status.ok()) return status.error();
    broadcast_seconds += seconds_since(broadcast_start);
    if (Status status = step.run(message, outputs); !status.ok()) return status.error();
    log.add(message, outputs);
    ++result.steps;
  }
  result.seconds = seconds_since(start);
  result.attention_seconds = step.times().attention;
  result.projection_seconds = step.times().projection;
  result.communication_seconds = broadcast_seconds + step.times().communication + step.gather_seconds();
  result.counters = scheduler.counters();
  result.refusals = scheduler.refusals();
  result.evictions = core->manager->pool().stats().evicted_blocks;
  result.output_digest = log.digest();
  result.divergence_checks = step.divergence_checks();
  result.alarms = step.alarms();
  return result;
}

Status serve_as_follower(RankStep& step, Communicator& communicator, Timeout deadline) {
  GatheredOutputs unused;
  Bytes bytes;
  while (true) {
    if (Status status = communicator.broadcast(bytes, 0, deadline); !status.ok()) return status;
    const auto message = decode_step(bytes);
    if (!message.ok()) return {message.error().code, message.error().message, 0};
    if (message->kind == StepKind::finish) return {};
    if (message->kind == StepKind::hold) continue;
    if (Status status = step.run(*message, unused); !status.ok()) return status;
  }
}

}  // namespace kvpool::launch
