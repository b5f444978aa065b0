// One rank from start to end: job, memory, agreement, serving, verification.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/communicator.hpp"
#include "tools/launch/driver/serve.hpp"
#include "tools/launch/launch_options.hpp"
#include "tools/launch/model/model_config.hpp"
#include "tools/launch/rank/compute_device.hpp"
#include "tools/launch/rank/rank_memory.hpp"
#include "tools/launch/verify/verifier.hpp"

namespace kvpool::launch {

/// Everything that is printed at the end; made on rank 0.
struct LaunchReport {
  std::string transport;
  int world_size = 1;
  ModelConfig model;
  std::int64_t num_requests = 0;         ///< in the trace
  std::vector<std::int64_t> agreements;  ///< block counts, from the first agreement to the one in force
  std::vector<RankMemory> ranks;
  ServeResult serve;
  std::optional<VerifyReport> verify;
  std::optional<Error> error;  ///< what ended the run; everything else then says how far it came

  [[nodiscard]] std::int64_t num_blocks() const { return agreements.back(); }
};

struct RankOutcome {
  std::optional<Error> error;          ///< why this rank ended early
  bool common_input_error = false;     ///< rank 0's input is at fault: one message is enough
  std::optional<LaunchReport> report;  ///< on rank 0, once it has served: also after an interruption or a failure
  std::int64_t steps = 0;              ///< executed on this rank
};

struct RankEnvironment {
  std::string transport;  ///< for the report
  int ranks_on_host = 1;
  /// Where this rank computes; an error becomes the error of all ranks.
  Result<std::shared_ptr<ComputeDevice>> device = host_device();
  /// Where this rank's memory figures come from; empty: the device's own probe.
  std::function<std::unique_ptr<MemoryProbe>(CountingAllocator&)> make_probe = {};
};

/// Runs the rank of `communicator`. On an error of its own it aborts the communicator, so that the others learn of
/// it. Never throws.
[[nodiscard]] RankOutcome run_rank(const LaunchOptions& options, Communicator& communicator,
                                   const RankEnvironment& environment, const ServeHooks& hooks);

}  // namespace kvpool::launch
