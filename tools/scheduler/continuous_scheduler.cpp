#include "tools/scheduler/continuous_scheduler.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace kvpool::scheduler {
namespace {

std::size_t lane_of(const WorkItem& item, std::size_t lanes) {
  const std::int64_t key = item.session >= 0 ? item.session : item.index;
  return static_cast<std::size_t>(key) % lanes;
}

template <class T>
void append_to(std::vector<T>& from, std::vector<T>& to) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
  from.clear();
}

}  // namespace

ContinuousScheduler::ContinuousScheduler(KVCacheManager& manager, const TokenSource& source,
                                         std::shared_ptr<const RequestHashing> hashing,
                                         const std::vector<WorkItem>& items, const SchedulerOptions& options)
    : manager_(&manager),
      options_(options),
      board_(static_cast<std::size_t>(options.num_threads)),
      lane_status_(static_cast<std::size_t>(options.num_threads)),
      team_(static_cast<std::size_t>(options.num_threads)) {
  LaneOptions lane_options;
  lane_options.max_running = std::max<std::int64_t>(1, options.max_running / options.num_threads);
  for (std::size_t i = 0; i < static_cast<std::size_t>(options.num_threads); ++i) {
    lanes_.emplace_back(i, manager, board_, source, hashing, lane_options);
  }
  for (const WorkItem& item : items) lanes_[lane_of(item, lanes_.size())].add(item);
}

Result<StepBatch> ContinuousScheduler::next_step() {
  team_.run([this](std::size_t i) { lane_status_[i] = lanes_[i].commit(); });
  if (Status status = first_error(); !status.ok()) return status.error();
  give_back_copies();
  manager_->new_step_starts();
  const Admission admission = board_.take_shortage() ? Admission::closed : Admission::open;
  if (Status status = run_lanes(admission); !status.ok()) return status.error();
  while (batch_is_empty() && !all_idle()) {
    // Lanes that try at the same time may be in each other's way: only one after the other proves that the
    // oldest request does not fit.
    if (Status status = run_one_by_one(); !status.ok()) return status.error();
    if (batch_is_empty() && !all_idle()) refuse_stuck();
  }
  return merge();
}

Status ContinuousScheduler::move_to(KVCacheManager& manager) {
  team_.run([this](std::size_t i) { lane_status_[i] = lanes_[i].commit(); });
  if (Status status = first_error(); !status.ok()) return status;
  give_back_copies();
  for (Lane& lane : lanes_) lane.move_to(manager);
  (void)board_.take_shortage();
  manager_ = &manager;
  return {};
}

Status ContinuousScheduler::run_lanes(Admission admission) {
  const auto active = std::count_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.idle(); });
  const std::int64_t share = std::max<std::int64_t>(1, options_.token_budget / std::max<std::int64_t>(active, 1));
  team_.run([&](std::size_t i) { lane_status_[i] = lanes_[i].schedule(share, admission == Admission::open); });
  return first_error();
}

Status ContinuousScheduler::run_one_by_one() {
  (void)board_.take_shortage();
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].idle()) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [this](std::size_t a, std::size_t b) { return lanes_[a].oldest() < lanes_[b].oldest(); });
  // A lane that was asked to give way does so first; the oldest request is then tried with that room.
  team_.run([this](std::size_t i) { lane_status_[i] = lanes_[i].commit(); });
  for (const std::size_t turn : order) {
    team_.run([&](std::size_t i) {
      if (i == turn) lane_status_[i] = lanes_[i].schedule(options_.token_budget, true);
    });
    if (Status status = first_error(); !status.ok()) return status;
    if (!batch_is_empty()) break;
  }
  return first_error();
}

void ContinuousScheduler::refuse_stuck() {
  // With several running requests the next round makes room; one that is alone has the whole pool.
  if (board_.num_running() > 1) return;
  Lane* oldest = nullptr;
  for (Lane& lane : lanes_) {
    if (lane.has_running()) {
      lane.refuse_running();
      return;
    }
    if (!lane.idle() && (oldest == nullptr || lane.oldest() < oldest->oldest())) oldest = &lane;
  }
  if (oldest != nullptr) oldest->refuse_waiting();
}

Status ContinuousScheduler::first_error() const {
  for (const Status& status : lane_status_) {
    if (!status.ok()) return status;
  }
  return {};
}

bool ContinuousScheduler::batch_is_empty() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.batch().empty(); });
}

bool ContinuousScheduler::all_idle() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.idle(); });
}

StepBatch ContinuousScheduler::merge() {
  StepBatch batch;
  for (Lane& lane : lanes_) {
    batch.sequences.insert(batch.sequences.end(), lane.batch().begin(), lane.batch().end());
    append_to(lane.removed(), batch.removed);
    append_to(lane.finished(), batch.finished);
    append_to(lane.refused(), refusals_);
  }
  (void)manager_->take_events();
  copies_ = manager_->take_block_copies();
  batch.copies = copies_;
  return batch;
}

/// The ranks have made the copies of the former step: source and target lose the reference held for them.
void ContinuousScheduler::give_back_copies() {
  for (const BlockCopy& copy : copies_) {
    const std::array<BlockId, 2> blocks{copy.source, copy.target};
    manager_->pool().free_blocks(blocks);
  }
  copies_.clear();
}

std::vector<Refusal> ContinuousScheduler::refusals() const {
  std::vector<Refusal> sorted = refusals_;
  std::sort(sorted.begin(), sorted.end(),
            [](const Refusal& a, const Refusal& b) { return a.item.index < b.item.index; });
  return sorted;
}

LaneCounters ContinuousScheduler::counters() const {
  LaneCounters sum;
  for (const Lane& lane : lanes_) {
    const LaneCounters& one = lane.counters();
    sum.prompt_tokens += one.prompt_tokens;
    sum.hit_tokens += one.hit_tokens;
    sum.resumed_hit_tokens += one.resumed_hit_tokens;
    sum.computed_tokens += one.computed_tokens;
    sum.output_tokens += one.output_tokens;
    sum.finished += one.finished;
    sum.preemptions += one.preemptions;
    sum.lost_prefixes += one.lost_prefixes;
  }
  return sum;
}

}  // namespace kvpool::scheduler
