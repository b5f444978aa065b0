// One scheduler thread's share of the requests: admission, chunked prefill, decode, preemption.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/manager/kv_cache_manager.hpp"
#include "tools/scheduler/lane_board.hpp"
#include "tools/scheduler/work.hpp"

namespace kvpool::scheduler {

/// One sequence's part of a step. Spans are valid until the lane is called again.
struct ScheduledSequence {
  std::int64_t index = 0;         ///< of the work item
  std::int64_t num_computed = 0;  ///< tokens whose KV is in the cache before the step
  std::span<const TokenId> tokens;
  bool produces_output = false;  ///< the last of `tokens` is the last one known: its result is the next output
  std::vector<std::span<const BlockId>> tables;  ///< one per group
};

struct LaneCounters {
  std::int64_t prompt_tokens = 0;       ///< of admitted requests, once each
  std::int64_t hit_tokens = 0;          ///< found in the cache at the first admission
  std::int64_t resumed_hit_tokens = 0;  ///< found again after a preemption
  std::int64_t computed_tokens = 0;     ///< scheduled, repeated work included
  std::int64_t output_tokens = 0;
  std::int64_t finished = 0;
  std::int64_t preemptions = 0;
  std::int64_t lost_prefixes = 0;  ///< hits that another thread recycled before they were pinned
};

struct LaneOptions {
  std::int64_t max_running = 64;  ///< requests
};

/// Used by one thread at a time. Lanes share the manager and the board, nothing else.
class Lane {
 public:
  Lane(std::size_t id, KVCacheManager& manager, LaneBoard& board, const TokenSource& source,
       std::shared_ptr<const RequestHashing> hashing, const LaneOptions& options);
  ~Lane();
  Lane(Lane&&) noexcept;
  Lane& operator=(Lane&&) = delete;

  /// Before the first step; in ascending order of index.
  void add(const WorkItem& item);

  /// Takes the former step's results: next tokens, finished requests, preemption that others asked for.
  [[nodiscard]] Status commit();

  /// Fills the next step with at most `token_budget` tokens, oldest requests first.
  [[nodiscard]] Status schedule(std::int64_t token_budget, bool admit);

  /// Preempts everything and works with `manager` from then on. Precondition: commit() has taken the last results.
  void move_to(KVCacheManager& manager);

  /// Gives the oldest running or waiting request up: it is alone and does not fit. Precondition: there is one.
  void refuse_running();
  void refuse_waiting();

  [[nodiscard]] bool idle() const noexcept { return running_.empty() && waiting_.empty(); }
  /// Index of the oldest request that is not finished; LaneBoard::kNone when idle.
  [[nodiscard]] std::int64_t oldest() const noexcept;

  [[nodiscard]] bool has_running() const noexcept { return !running_.empty(); }

  [[nodiscard]] const std::vector<ScheduledSequence>& batch() const noexcept { return batch_; }
  /// Requests whose blocks were given back since the former step (finished, preempted, refused).
  [[nodiscard]] std::vector<std::int64_t>& removed() noexcept { return removed_; }
  [[nodiscard]] std::vector<std::int64_t>& finished() noexcept { return finished_; }
  [[nodiscard]] std::vector<Refusal>& refused() noexcept { return refused_; }
  [[nodiscard]] const LaneCounters& counters() const noexcept { return counters_; }

 private:
  struct Live;
  enum class Progress { scheduled, no_room, gone };

  [[nodiscard]] Status take_result(Live& live);
  void honour_wish();
  [[nodiscard]] Status schedule_running(std::int64_t& budget);
  [[nodiscard]] Result<Progress> extend(std::size_t position, std::int64_t tokens);
  [[nodiscard]] Progress make_room(std::size_t position);
  [[nodiscard]] Status admit_waiting(std::int64_t& budget);
  [[nodiscard]] Result<Progress> start(std::int64_t budget);
  [[nodiscard]] Status prepare(Live& live) const;
  void put_into_batch(Live& live, std::int64_t tokens);
  void preempt(std::size_t position);
  void give_back(Live& live);
  void refuse(const WorkItem& item, std::int64_t needed);
  void show();
  [[nodiscard]] std::int64_t blocks_needed(const WorkItem& item) const;

  std::size_t id_;
  KVCacheManager* manager_;
  LaneBoard& board_;
  const TokenSource& source_;
  std::shared_ptr<const RequestHashing> hashing_;
  LaneOptions options_;

  std::deque<std::unique_ptr<Live>> waiting_;   ///< ascending index
  std::vector<std::unique_ptr<Live>> running_;  ///< ascending index
  std::vector<ScheduledSequence> batch_;
  std::vector<std::int64_t> removed_;
  std::vector<std::int64_t> finished_;
  std::vector<Refusal> refused_;
  LaneCounters counters_;
};

}  // namespace kvpool::scheduler
