// The serving loops: rank 0 schedules, tells and collects; the other ranks follow.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/communicator.hpp"
#include "tools/launch/driver/output_log.hpp"
#include "tools/launch/driver/workload.hpp"
#include "tools/launch/launch_options.hpp"
#include "tools/launch/rank/rank_pool.hpp"
#include "tools/launch/rank/rank_step.hpp"
#include "tools/scheduler/lane.hpp"

namespace kvpool::launch {

/// What a run came to, on rank 0.
struct ServeResult {
  bool interrupted = false;
  std::int64_t steps = 0;
  double seconds = 0;
  double schedule_seconds = 0;
  double attention_seconds = 0;
  double projection_seconds = 0;
  double communication_seconds = 0;
  double table_seconds = 0;  ///< changes of block tables: applied, digested, compared
  scheduler::LaneCounters counters;
  std::uint64_t evictions = 0;
  std::vector<scheduler::Refusal> refusals;
  std::string output_digest;
  std::int64_t divergence_checks = 0;
  std::vector<std::string> alarms;
};

struct ServeHooks {
  std::function<void(std::int64_t)> started;            ///< once, with the number of requests
  std::function<bool()> interrupted;                    ///< asked before every step
  std::function<void(std::int64_t)> requests_finished;  ///< how many since the last call
};

/// Sends a message of a kind that carries nothing else to all ranks; rank 0 only.
[[nodiscard]] Status tell(StepKind kind, Communicator& communicator, Timeout deadline);

/// Rank 0: runs until all requests are done or an interruption; the followers then still wait for StepKind::finish.
/// `result` says how far it came, also when it ends with an error: those of manager, kernels, agreement and
/// communicator; the caller aborts the communicator.
[[nodiscard]] Status serve_as_driver(const LaunchOptions& options, PoolKeeper& pool, const Workload& workload,
                                     RankStep& step, Communicator& communicator, OutputLog& log,
                                     const ServeHooks& hooks, ServeResult& result);

/// Every other rank: until rank 0 says that it is over.
[[nodiscard]] Status serve_as_follower(RankStep& step, PoolKeeper& pool, Communicator& communicator, Timeout deadline);

}  // namespace kvpool::launch
