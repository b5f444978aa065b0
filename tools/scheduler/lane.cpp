#include "tools/scheduler/lane.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace kvpool::scheduler {

struct Lane::Live {
  WorkItem item;
  std::optional<Request> request;    ///< made at the first admission
  std::optional<Sequence> sequence;  ///< likewise
  std::int64_t outputs = 0;          ///< output tokens produced
  std::int64_t scheduled = 0;        ///< tokens in the step that is being filled or executed
};

Lane::Lane(std::size_t id, KVCacheManager& manager, LaneBoard& board, const TokenSource& source,
           std::shared_ptr<const RequestHashing> hashing, const LaneOptions& options)
    : id_(id), manager_(&manager), board_(board), source_(source), hashing_(std::move(hashing)), options_(options) {}

Lane::Lane(Lane&&) noexcept = default;

Lane::~Lane() {
  for (const auto& live : running_) manager_->free(*live->sequence);
}

void Lane::add(const WorkItem& item) {
  auto live = std::make_unique<Live>();
  live->item = item;
  waiting_.push_back(std::move(live));
}

std::int64_t Lane::oldest() const noexcept {
  std::int64_t index = LaneBoard::kNone;
  if (!running_.empty()) index = running_.front()->item.index;
  if (!waiting_.empty() && (index == LaneBoard::kNone || waiting_.front()->item.index < index)) {
    index = waiting_.front()->item.index;
  }
  return index;
}

// --- results of a step -----------------------------------------------------------------------------------

Status Lane::commit() {
  batch_.clear();
  for (const auto& live : running_) {
    if (Status status = take_result(*live); !status.ok()) return status;
  }
  std::erase_if(running_,
                [](const std::unique_ptr<Live>& live) { return live->request->status == RequestStatus::finished; });
  honour_wish();
  show();
  return {};
}

Status Lane::take_result(Live& live) {
  if (live.scheduled == 0) return {};
  live.scheduled = 0;
  Request& request = *live.request;
  request.num_in_flight_tokens = 0;
  if (request.num_computed_tokens < request.num_tokens()) return {};
  if (live.outputs < live.item.output_tokens) {
    const TokenId token = source_.output(live.item.index, live.outputs);
    ++live.outputs;
    ++counters_.output_tokens;
    if (live.outputs < live.item.output_tokens) {
      request.append_tokens({&token, 1});
      return {};
    }
  }
  request.status = RequestStatus::finished;
  give_back(live);
  finished_.push_back(live.item.index);
  ++counters_.finished;
  return {};
}

void Lane::honour_wish() {
  const std::optional<std::int64_t> asker = board_.take_wish(id_);
  if (!asker || running_.empty() || running_.back()->item.index <= *asker) return;
  preempt(running_.size() - 1);
}

// --- filling a step --------------------------------------------------------------------------------------

Status Lane::schedule(std::int64_t token_budget, bool admit) {
  const std::int64_t preemptions_before = counters_.preemptions;
  std::int64_t budget = token_budget;
  if (Status status = schedule_running(budget); !status.ok()) return status;
  // Blocks freed by a preemption are for older requests: nobody new takes them in the same step.
  if (admit && counters_.preemptions == preemptions_before) {
    if (Status status = admit_waiting(budget); !status.ok()) return status;
  }
  show();
  return {};
}

Status Lane::schedule_running(std::int64_t& budget) {
  for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
    Live& live = *running_[i];
    if (live.scheduled > 0) continue;
    const std::int64_t missing = live.request->num_tokens() - live.request->num_computed_tokens;
    // Every younger request keeps one token of the budget: a long prefill does not stop the decodes behind it.
    const auto younger = static_cast<std::int64_t>(running_.size() - i - 1);
    const std::int64_t tokens = std::min(missing, std::max<std::int64_t>(1, budget - younger));
    const Result<Progress> progress = extend(i, tokens);
    if (!progress.ok()) return progress.error();
    if (*progress == Progress::scheduled) budget -= tokens;
  }
  return {};
}

Result<Lane::Progress> Lane::extend(std::size_t position, std::int64_t tokens) {
  Live& live = *running_[position];
  while (true) {
    AllocateSlots arguments;
    arguments.num_new_tokens = tokens;
    const auto allocated = manager_->allocate_slots(*live.request, *live.sequence, arguments);
    if (!allocated.ok()) return allocated.error();
    if (allocated->outcome == AllocateOutcome::allocated) {
      put_into_batch(live, tokens);
      return Progress::scheduled;
    }
    board_.report_shortage();
    const Progress progress = make_room(position);
    if (progress != Progress::scheduled) return progress;
  }
}

/// `scheduled` means: room was made, try again.
Lane::Progress Lane::make_room(std::size_t position) {
  if (position + 1 < running_.size()) {
    preempt(running_.size() - 1);
    show();
    return Progress::scheduled;
  }
  const std::int64_t index = running_[position]->item.index;
  const LaneBoard::Youngest youngest = board_.youngest();
  if (youngest.lane != id_ && youngest.index > index) {
    board_.ask(youngest.lane, index);
    return Progress::no_room;
  }
  // The youngest of all gives way; one that is alone keeps what it has, and the scheduler decides.
  if (board_.num_running() > 1) {
    preempt(position);
    show();
    return Progress::gone;
  }
  return Progress::no_room;
}

Status Lane::admit_waiting(std::int64_t& budget) {
  board_.show_blocked(id_, LaneBoard::kNone);
  while (!waiting_.empty() && budget > 0 && static_cast<std::int64_t>(running_.size()) < options_.max_running) {
    const std::int64_t index = waiting_.front()->item.index;
    if (board_.older_is_blocked(index)) break;
    const Result<Progress> progress = start(budget);
    if (!progress.ok()) return progress.error();
    if (*progress == Progress::no_room) {
      board_.show_blocked(id_, index);
      break;
    }
    if (*progress == Progress::scheduled) budget -= static_cast<std::int64_t>(batch_.back().tokens.size());
  }
  return {};
}

Result<Lane::Progress> Lane::start(std::int64_t budget) {
  Live& live = *waiting_.front();
  if (const std::int64_t needed = blocks_needed(live.item); needed > manager_->pool().num_blocks() - 1) {
    refuse(live.item, needed);
    waiting_.pop_front();
    return Progress::gone;
  }
  if (Status status = prepare(live); !status.ok()) return status.error();
  Request& request = *live.request;
  while (true) {
    const PrefixHit hit = manager_->get_computed_blocks(request);
    request.shared_prefix_boundary = hit.shared_prefix_boundary;
    AllocateSlots arguments;
    arguments.num_new_tokens = std::min(request.num_tokens() - hit.num_computed_tokens, budget);
    arguments.num_new_computed_tokens = hit.num_computed_tokens;
    arguments.new_computed_blocks = &hit.blocks;
    arguments.full_sequence_must_fit = true;
    arguments.has_scheduled_reqs = !running_.empty();
    const auto allocated = manager_->allocate_slots(request, *live.sequence, arguments);
    if (!allocated.ok()) return allocated.error();
    if (allocated->outcome == AllocateOutcome::prefix_lost) {
      ++counters_.lost_prefixes;
      continue;
    }
    if (allocated->outcome == AllocateOutcome::no_capacity) return Progress::no_room;
    manager_->record_prefix_cache_stats(request, hit.num_computed_tokens);
    if (request.num_preemptions == 0) {
      counters_.prompt_tokens += request.num_prompt_tokens();
      counters_.hit_tokens += hit.num_computed_tokens;
    } else {
      counters_.resumed_hit_tokens += hit.num_computed_tokens;
    }
    request.num_computed_tokens = hit.num_computed_tokens;
    request.status = RequestStatus::running;
    put_into_batch(live, arguments.num_new_tokens);
    const auto place =
        std::upper_bound(running_.begin(), running_.end(), live.item.index,
                         [](std::int64_t index, const auto& other) { return index < other->item.index; });
    running_.insert(place, std::move(waiting_.front()));
    waiting_.pop_front();
    return Progress::scheduled;
  }
}

Status Lane::prepare(Live& live) const {
  if (!live.sequence) live.sequence.emplace(manager_->make_sequence());
  if (live.request) return {};
  RequestOptions options;
  options.id = std::to_string(live.item.index);
  options.prompt = source_.prompt(live.item.index);
  auto request = Request::create(std::move(options), hashing_);
  if (!request.ok()) return request.error();
  live.request.emplace(*std::move(request));
  return {};
}

void Lane::put_into_batch(Live& live, std::int64_t tokens) {
  Request& request = *live.request;
  ScheduledSequence sequence;
  sequence.index = live.item.index;
  sequence.num_computed = request.num_computed_tokens;
  sequence.tokens =
      request.tokens().subspan(static_cast<std::size_t>(request.num_computed_tokens), static_cast<std::size_t>(tokens));
  request.num_computed_tokens += tokens;
  request.num_in_flight_tokens = tokens;
  sequence.produces_output =
      request.num_computed_tokens == request.num_tokens() && live.outputs < live.item.output_tokens;
  const std::size_t groups = manager_->config().groups.size();
  for (std::size_t group = 0; group < groups; ++group) {
    sequence.tables.push_back(manager_->block_table(*live.sequence, GroupId{static_cast<std::uint32_t>(group)}));
  }
  live.scheduled = tokens;
  counters_.computed_tokens += tokens;
  batch_.push_back(std::move(sequence));
}

// --- giving way ------------------------------------------------------------------------------------------

void Lane::preempt(std::size_t position) {
  std::unique_ptr<Live> live = std::move(running_[position]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(position));
  give_back(*live);
  Request& request = *live->request;
  request.num_computed_tokens = 0;
  request.num_in_flight_tokens = 0;
  ++request.num_preemptions;
  request.status = RequestStatus::preempted;
  ++counters_.preemptions;
  const auto place = std::upper_bound(waiting_.begin(), waiting_.end(), live->item.index,
                                      [](std::int64_t index, const auto& other) { return index < other->item.index; });
  waiting_.insert(place, std::move(live));
}

void Lane::move_to(KVCacheManager& manager) {
  while (!running_.empty()) preempt(running_.size() - 1);
  for (const auto& live : waiting_) live->sequence.reset();
  manager_ = &manager;
  board_.show_blocked(id_, LaneBoard::kNone);
  show();
}

void Lane::give_back(Live& live) {
  manager_->free(*live.sequence);
  removed_.push_back(live.item.index);
}

void Lane::refuse_running() {
  const std::unique_ptr<Live> live = std::move(running_.front());
  running_.erase(running_.begin());
  give_back(*live);
  refuse(live->item, blocks_needed(live->item));
  show();
}

void Lane::refuse_waiting() {
  refuse(waiting_.front()->item, blocks_needed(waiting_.front()->item));
  waiting_.pop_front();
  board_.show_blocked(id_, LaneBoard::kNone);
}

void Lane::refuse(const WorkItem& item, std::int64_t needed) {
  Refusal refusal;
  refusal.item = item;
  refusal.blocks_needed = needed;
  refusal.blocks_usable = std::int64_t{manager_->pool().num_blocks()} - 1;
  refusal.reason = fmt::format("request {} ({} prompt and {} output tokens) needs {} blocks, the pool has {}",
                               item.index, item.prompt_tokens, item.output_tokens, needed, refusal.blocks_usable);
  refused_.push_back(std::move(refusal));
}

void Lane::show() {
  board_.show(id_, running_.empty() ? LaneBoard::kNone : running_.back()->item.index,
              static_cast<std::int64_t>(running_.size()));
}

/// At the request's full length, counting the groups that keep every block. The last output token is never fed
/// back, so it needs no slot.
std::int64_t Lane::blocks_needed(const WorkItem& item) const {
  const std::int64_t tokens = item.prompt_tokens + std::max<std::int64_t>(item.output_tokens - 1, 0);
  std::int64_t blocks = 0;
  for (const KVCacheGroup& group : manager_->config().groups) {
    if (!std::holds_alternative<FullAttentionSpec>(group.spec)) continue;
    const std::int64_t size = block_size(group.spec);
    blocks += (tokens + size - 1) / size;
  }
  return std::max<std::int64_t>(blocks, 1);
}

}  // namespace kvpool::scheduler
