// Replays a request trace on one pool.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "kvpool/pool/block_pool.hpp"
#include "tools/cli/progress.hpp"
#include "tools/replay/admitter.hpp"
#include "tools/replay/replay_row.hpp"
#include "tools/replay/request_keys.hpp"
#include "tools/trace/trace.hpp"

namespace kvpool::tools {

/// Requests that the threads of one replay hold, so that a request that fits nowhere knows whether to wait.
struct SharedLoad {
  std::atomic<std::int64_t> live{0};       ///< requests that hold blocks or are about to
  std::atomic<std::uint64_t> releases{0};  ///< times that blocks came back
};

/// One scheduler thread: its window of live requests and its counters. Requests are given to it one by one.
class ReplayLane {
 public:
  ReplayLane(const Trace& trace, const ReplayOptions& options, BlockPool& pool, SharedLoad& load);

  /// Evictions per request; for a lane that has the pool for itself.
  void count_evictions() { admitter_.count_evictions(); }

  /// Carries out one request by the replay rules.
  RequestOutcome admit(std::size_t index);

  /// Frees all live requests, oldest first.
  void free_all();

  [[nodiscard]] const ReplayCounts& counts() const noexcept { return counts_; }
  [[nodiscard]] const LatencySamples& look_up_times() const noexcept { return look_up_times_; }
  [[nodiscard]] const LatencySamples& allocate_times() const noexcept { return allocate_times_; }
  [[nodiscard]] const LatencySamples& free_times() const noexcept { return free_times_; }

 private:
  using Clock = LatencySamples::Clock;

  /// Takes blocks, freeing older requests of this lane and waiting for other lanes as needed. False: rejected.
  bool take(std::vector<BlockId>& table);
  bool wait_for_room(std::int64_t live_before, std::uint64_t releases_before) const;
  void free_oldest();
  [[nodiscard]] std::size_t num_live() const noexcept { return live_.size() - oldest_; }
  [[nodiscard]] std::vector<BlockId> spare_table();

  const Trace& trace_;
  const ReplayOptions& options_;
  BlockPool& pool_;
  SharedLoad& load_;
  KeyMaker keys_;
  Admitter admitter_;
  RequestKeys request_;
  std::vector<std::vector<BlockId>> live_;  ///< block tables, oldest at oldest_
  std::size_t oldest_ = 0;
  std::vector<std::vector<BlockId>> spare_;  ///< empty tables to use again
  ReplayCounts counts_;
  LatencySamples look_up_times_, allocate_times_, free_times_;
};

/// Replays the whole trace. One thread: exactly by the rules, on one shard. Several: sessions (requests without one:
/// by index) are spread over the threads, which share one pool. Ends early on interrupt_requested().
/// Throws std::invalid_argument for a block size that the trace cannot name and std::bad_alloc for a capacity beyond
/// memory.
[[nodiscard]] ReplayResult replay(const Trace& trace, const ReplayOptions& options, const OutcomeSink& sink = {});

/// The part of replay() for several threads.
void replay_in_parallel(const Trace& trace, const ReplayOptions& options, BlockPool& pool, Progress& progress,
                        ReplayResult& result);

/// Adds a lane's counters and times to the result.
void collect(const ReplayLane& lane, ReplayResult& result);

}  // namespace kvpool::tools
