// Continuous batching by several threads on one KVCacheManager, one global step at a time.
//
// Requests are spread over lanes (threads) by session, or by index without one. A step: all lanes take the
// former step's results, then all fill their share of the next one, allocating from the shared manager at the
// same time; then one thread merges and drains what belongs to the whole cache. When the pool is full a lane
// preempts its own youngest request, and without one asks the owner of the youngest of all; the oldest request
// of all is therefore never stopped, which bounds every wait.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/manager/kv_cache_manager.hpp"
#include "tools/scheduler/lane.hpp"
#include "tools/scheduler/lane_board.hpp"
#include "tools/scheduler/lane_team.hpp"
#include "tools/scheduler/work.hpp"

namespace kvpool::scheduler {

struct SchedulerOptions {
  std::int64_t num_threads = 1;
  std::int64_t token_budget = 512;  ///< tokens per step, all lanes together; at least one per lane is used
  std::int64_t max_running = 64;    ///< requests, all lanes together; at least one per lane
};

/// What all ranks execute next. Spans are valid until next_step() is called again.
struct StepBatch {
  std::vector<ScheduledSequence> sequences;
  std::vector<std::int64_t> removed;   ///< requests whose blocks were given back before this step
  std::vector<std::int64_t> finished;  ///< requests completed by the former step
  std::vector<BlockCopy> copies;
};

class ContinuousScheduler {
 public:
  /// `manager` and `source` must outlive the scheduler. Items in ascending order of index.
  ContinuousScheduler(KVCacheManager& manager, const TokenSource& source, std::shared_ptr<const RequestHashing> hashing,
                      const std::vector<WorkItem>& items, const SchedulerOptions& options);

  /// The step after the former one has been executed. No sequences: all requests are finished or refused.
  /// Errors: what the manager answers to a wrong call.
  [[nodiscard]] Result<StepBatch> next_step();

  /// Goes on with another cache, at a step boundary: takes the last step's results, preempts every running request
  /// and lets go of the former manager, whose blocks are all free afterwards. Requests are admitted again from their
  /// first token; those that do not fit any more are refused. `manager` has the same groups and must outlive the
  /// scheduler.
  [[nodiscard]] Status move_to(KVCacheManager& manager);

  /// Requests that cannot run, with their numbers, in order of their index.
  [[nodiscard]] std::vector<Refusal> refusals() const;
  [[nodiscard]] LaneCounters counters() const;

 private:
  enum class Admission { open, closed };
  [[nodiscard]] Status run_lanes(Admission admission);
  [[nodiscard]] Status run_one_by_one();
  [[nodiscard]] Status first_error() const;
  [[nodiscard]] bool batch_is_empty() const;
  [[nodiscard]] bool all_idle() const;
  void refuse_stuck();
  [[nodiscard]] StepBatch merge();
  void give_back_copies();

  KVCacheManager* manager_;
  SchedulerOptions options_;
  LaneBoard board_;
  std::vector<Lane> lanes_;
  std::vector<Status> lane_status_;
  std::vector<Refusal> refusals_;
  std::vector<BlockCopy> copies_;  ///< of the step in execution
  LaneTeam team_;
};

}  // namespace kvpool::scheduler
