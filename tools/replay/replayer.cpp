#include "tools/replay/replayer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "tools/cli/interrupt.hpp"

namespace kvpool::tools {

ReplayLane::ReplayLane(const Trace& trace, const ReplayOptions& options, BlockPool& pool, SharedLoad& load)
    : trace_(trace),
      options_(options),
      pool_(pool),
      load_(load),
      keys_(trace, options.block_size, options.hash_output),
      admitter_(pool, options.block_size) {}

std::vector<BlockId> ReplayLane::spare_table() {
  if (spare_.empty()) {
    return {};
  }
  std::vector<BlockId> table = std::move(spare_.back());
  spare_.pop_back();
  return table;
}

void ReplayLane::free_oldest() {
  const auto start = Clock::now();
  admitter_.release(live_[oldest_]);
  free_times_.add(Clock::now() - start);
  spare_.push_back(std::move(live_[oldest_]));
  if (++oldest_ == live_.size()) {
    live_.clear();
    oldest_ = 0;
  } else if (oldest_ > static_cast<std::size_t>(options_.window)) {
    live_.erase(live_.begin(), live_.begin() + static_cast<std::ptrdiff_t>(oldest_));
    oldest_ = 0;
  }
  load_.live.fetch_sub(1, std::memory_order_relaxed);
  load_.releases.fetch_add(1, std::memory_order_release);
}

void ReplayLane::free_all() {
  while (num_live() > 0) {
    free_oldest();
  }
}

// True: try again. False: nobody holds anything, so waiting is of no use.
bool ReplayLane::wait_for_room(std::int64_t live_before, std::uint64_t releases_before) const {
  const bool quiet = load_.releases.load(std::memory_order_acquire) == releases_before;
  if (quiet && live_before == 0 && load_.live.load(std::memory_order_relaxed) == 0) {
    return false;
  }
  if (quiet) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return !interrupt_requested();
}

bool ReplayLane::take(std::vector<BlockId>& table) {
  while (true) {
    const std::uint64_t releases_before = load_.releases.load(std::memory_order_acquire);
    const std::int64_t live_before = load_.live.fetch_add(1, std::memory_order_relaxed);
    const Taken taken = admitter_.take(request_, table);
    if (taken == Taken::all) {
      return true;
    }
    load_.live.fetch_sub(1, std::memory_order_relaxed);
    if (taken == Taken::lost) {
      admitter_.look_up(request_);
      load_.releases.fetch_add(1, std::memory_order_release);
    } else if (num_live() > 0) {
      free_oldest();
      ++counts_.forced_frees;
    } else if (!wait_for_room(live_before, releases_before)) {
      return false;
    } else {
      admitter_.look_up(request_);  // what was found may be gone by now
    }
  }
}

RequestOutcome ReplayLane::admit(std::size_t index) {
  const TraceRequest& traced = trace_[index];
  ++counts_.requests;
  counts_.input_tokens += static_cast<std::uint64_t>(traced.input_tokens);
  counts_.prompt_full_blocks += static_cast<std::uint64_t>(traced.input_tokens / options_.block_size);
  RequestOutcome outcome;
  outcome.blocks = keys_.num_blocks(index);
  outcome.rejected = outcome.blocks > options_.capacity;
  if (outcome.rejected) {
    ++counts_.rejected;
    return outcome;
  }
  if (num_live() == static_cast<std::size_t>(options_.window)) {
    free_oldest();
  }
  keys_.make(index, request_);
  std::vector<BlockId> table = spare_table();
  const std::uint64_t evicted = admitter_.evictions();
  const auto start = Clock::now();
  admitter_.look_up(request_);
  const auto looked_up = Clock::now();
  outcome.rejected = !take(table);
  if (outcome.rejected) {
    ++counts_.rejected;
    return outcome;
  }
  const std::uint64_t kept = admitter_.publish(request_, table);
  allocate_times_.add(Clock::now() - looked_up);
  look_up_times_.add(looked_up - start);
  live_.push_back(std::move(table));
  outcome.hit_blocks = admitter_.hits();
  outcome.evictions = admitter_.evictions() - evicted;
  counts_.evictions += outcome.evictions;
  ++counts_.admitted;
  counts_.hit_blocks += outcome.hit_blocks;
  counts_.allocated_blocks += static_cast<std::uint64_t>(outcome.blocks) - outcome.hit_blocks;
  counts_.inserts += kept;
  const std::uint64_t published = request_.keys.size() - std::min(request_.keys.size(), admitter_.hits());
  counts_.duplicate_inserts += published - kept;
  const auto used = static_cast<std::uint64_t>(options_.capacity) - pool_.num_free_blocks();
  counts_.peak_used_blocks = std::max(counts_.peak_used_blocks, used);
  return outcome;
}

void collect(const ReplayLane& lane, ReplayResult& result) {
  result.counts.merge(lane.counts());
  result.look_up.append(lane.look_up_times());
  result.allocate.append(lane.allocate_times());
  result.free.append(lane.free_times());
}

namespace {

BlockPoolOptions pool_options(const ReplayOptions& options) {
  BlockPoolOptions pool;
  pool.num_blocks = static_cast<std::uint32_t>(options.capacity) + 1;
  pool.free_order = options.order;
  pool.duplicates = options.duplicates;
  pool.num_shards = options.threads == 1 ? 1 : 0;
  return pool;
}

void replay_in_order(const Trace& trace, const ReplayOptions& options, BlockPool& pool, Progress& progress,
                     const OutcomeSink& sink, ReplayResult& result) {
  SharedLoad load;
  ReplayLane lane(trace, options, pool, load);
  ReplayDigest digest;
  lane.count_evictions();
  for (std::size_t index = 0; index < trace.size() && !result.interrupted; ++index) {
    const RequestOutcome outcome = lane.admit(index);
    digest.add(outcome);
    if (sink) {
      sink(index, outcome);
    }
    progress.advance();
    result.interrupted = interrupt_requested();
  }
  lane.free_all();
  collect(lane, result);
  if (!result.interrupted) {
    result.digest = digest.value();
  }
}

// Every block is free again, and the pool's own books agree.
Status verify(const BlockPool& pool, const ReplayOptions& options, const ReplayCounts& counts,
              std::uint64_t pool_evictions) {
  if (Status status = pool.check_invariants(); !status) {
    return status;
  }
  if (pool.num_free_blocks() != static_cast<std::uint32_t>(options.capacity)) {
    return {ErrorCode::internal, fmt::format("{} of {} blocks are free after every request was freed",
                                             pool.num_free_blocks(), options.capacity)};
  }
  if (counts.evictions != pool_evictions) {
    return {ErrorCode::internal,
            fmt::format("the pool evicted {} blocks, but the blocks that it handed out had carried {} keys",
                        pool_evictions, counts.evictions)};
  }
  return {};
}

}  // namespace

ReplayResult replay(const Trace& trace, const ReplayOptions& options, const OutcomeSink& sink) {
  ReplayResult result;
  BlockPool pool(pool_options(options));
  const auto start = LatencySamples::Clock::now();
  {
    Progress progress("replay", "requests", trace.size());
    if (options.threads == 1) {
      replay_in_order(trace, options, pool, progress, sink, result);
    } else {
      replay_in_parallel(trace, options, pool, progress, result);
    }
  }
  const std::chrono::duration<double> elapsed = LatencySamples::Clock::now() - start;
  result.seconds = elapsed.count();
  const PoolStats stats = pool.stats();
  if (options.threads > 1) {
    result.counts.evictions = stats.evicted_blocks;
  }
  if (options.duplicates == DuplicatePolicy::keep) {
    result.counts.duplicate_inserts = stats.duplicate_keys;
  }
  result.counts.final_cached_keys = pool.num_cached_keys();
  result.invariants = verify(pool, options, result.counts, stats.evicted_blocks);
  return result;
}

}  // namespace kvpool::tools
