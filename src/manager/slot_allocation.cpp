#include "manager/slot_allocation.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvpool {
namespace {

Status invalid(std::string message) { return Status(ErrorCode::invalid_argument, std::move(message)); }

constexpr std::int64_t kMostTokens = std::int64_t{1} << 48;  // sums of a few such numbers do not overflow

Status check_ranges(const Request& request, const AllocateSlots& arguments) {
  const std::pair<const char*, std::int64_t> fields[] = {
      {"num_new_tokens", arguments.num_new_tokens},
      {"num_new_computed_tokens", arguments.num_new_computed_tokens},
      {"num_lookahead_tokens", arguments.num_lookahead_tokens},
      {"num_external_computed_tokens", arguments.num_external_computed_tokens},
      {"num_encoder_tokens", arguments.num_encoder_tokens},
      {"reserved_blocks", arguments.reserved_blocks},
      {"num_computed_tokens", request.num_computed_tokens},
      {"num_in_flight_tokens", request.num_in_flight_tokens},
  };
  for (const auto& [name, value] : fields) {
    if (value < 0) return invalid(fmt::format("{}: {} is negative", name, value));
    if (value > kMostTokens) return invalid(fmt::format("{}: {} is more than 2^48", name, value));
  }
  return {};
}

}  // namespace

SlotAllocation::SlotAllocation(CacheCoordinator& coordinator, const KVCacheManagerOptions& options,
                               std::int64_t watermark_blocks, const Request& request, const AllocateSlots& arguments)
    : coordinator_(coordinator),
      options_(options),
      request_(request),
      arguments_(arguments),
      hits_(arguments.new_computed_blocks) {
  if (hits_ != nullptr && hits_->empty()) hits_ = nullptr;
  const bool admission = request.status == RequestStatus::waiting || request.status == RequestStatus::preempted;
  if (arguments.has_scheduled_reqs && admission) watermark_ = watermark_blocks;
  local_ = request.num_computed_tokens + arguments.num_new_computed_tokens;
  total_ = std::min(local_ + arguments.num_external_computed_tokens, options.max_model_len);
}

Status SlotAllocation::validate(const SequenceState& state) const {
  if (Status status = check_ranges(request_, arguments_); !status) return status;
  const std::int64_t external = arguments_.num_external_computed_tokens;
  if (arguments_.num_new_tokens == 0 && external == 0) return invalid("neither new nor external tokens");
  if (local_ + external > options_.max_model_len) {
    return invalid(
        fmt::format("{} computed tokens, more than max_model_len {}", local_ + external, options_.max_model_len));
  }
  if (hits_ == nullptr) {
    if (arguments_.num_new_computed_tokens == 0) return {};
    return invalid(fmt::format("num_new_computed_tokens: {} without blocks", arguments_.num_new_computed_tokens));
  }
  if (!options_.enable_caching) return invalid("new_computed_blocks: caching is off");
  if (hits_->groups.size() != coordinator_.num_groups()) {
    return invalid(
        fmt::format("new_computed_blocks: {} groups instead of {}", hits_->groups.size(), coordinator_.num_groups()));
  }
  if (!state.fresh()) return invalid("new_computed_blocks: the request has blocks already");
  return {};
}

AllocationPlan SlotAllocation::plan() const noexcept {
  const std::int64_t main = total_ + arguments_.num_new_tokens;
  AllocationPlan plan;
  plan.demand.tokens = std::min(main + arguments_.num_lookahead_tokens, options_.max_model_len);
  plan.demand.main_tokens = main;
  plan.demand.total_computed = total_;
  plan.demand.local_computed = local_;
  plan.external_tokens = arguments_.num_external_computed_tokens;
  plan.encoder_demand.tokens = plan.encoder_demand.main_tokens = arguments_.num_encoder_tokens;
  plan.hits = hits_;
  return plan;
}

// The whole sequence, although only a chunk is scheduled now: what is admitted here can run to its end.
bool SlotAllocation::whole_sequence_fits(const SequenceState& state) const {
  AllocationPlan whole = plan();
  whole.demand.tokens = std::min(request_.num_tokens(), options_.max_model_len);
  whole.demand.main_tokens = whole.demand.tokens;
  whole.demand.apply_admission_cap = whole.encoder_demand.apply_admission_cap = true;
  const std::int64_t need = coordinator_.blocks_to_allocate(state, whole).announced;
  return need + watermark_ <= std::int64_t{coordinator_.pool().num_free_blocks()};
}

std::int64_t SlotAllocation::processed_tokens() const noexcept {
  return std::max<std::int64_t>(0, total_ - request_.num_in_flight_tokens);
}

bool SlotAllocation::fits(const SequenceState& state) const {
  if (arguments_.full_sequence_must_fit && !whole_sequence_fits(state)) return false;
  const std::int64_t leaving = coordinator_.releasable_blocks(state, processed_tokens(), request_.num_prompt_tokens());
  const std::int64_t free = std::int64_t{coordinator_.pool().num_free_blocks()} + leaving;
  const BlockDemand need = coordinator_.blocks_to_allocate(state, plan());
  return need.reserved + need.left_to_keep(watermark_ + arguments_.reserved_blocks) <= free;
}

AllocatedSlots SlotAllocation::run(SequenceState& state) {
  AllocatedSlots result;
  if (arguments_.full_sequence_must_fit && !whole_sequence_fits(state)) return result;
  coordinator_.remove_skipped_blocks(state, processed_tokens(), request_.num_prompt_tokens());

  const AllocationPlan plan = this->plan();
  const BlockDemand need = coordinator_.blocks_to_allocate(state, plan);
  BlockPool& pool = coordinator_.pool();
  const std::int64_t keep_free = need.left_to_keep(watermark_ + arguments_.reserved_blocks);
  if (need.reserved + keep_free > std::int64_t{pool.num_blocks()}) return result;
  std::optional<Reservation> fresh;
  std::optional<Reservation> for_hits;
  if (need.reserved == 0 && keep_free == 0) {
    fresh.emplace();  // most decode steps: the last block has room
    for_hits.emplace();
  } else {
    // Apart, so that pinning takes nothing that is set aside for fresh blocks.
    const auto kept = static_cast<std::uint32_t>(keep_free);
    const auto hits = static_cast<std::uint32_t>(need.for_hits);
    fresh = pool.try_reserve(static_cast<std::uint32_t>(need.reserved) - hits, kept + hits);
    if (fresh) for_hits = hits > 0 ? pool.try_reserve(hits, kept) : std::optional<Reservation>(std::in_place);
    if (!for_hits) return result;
  }

  if (!coordinator_.pin_hits(request_, plan, *for_hits)) {
    result.outcome = AllocateOutcome::prefix_lost;
    return result;
  }
  if (plan.hits != nullptr || plan.external_tokens > 0) {
    coordinator_.allocate_computed_blocks(state, plan, *fresh);
  }
  result.new_blocks = coordinator_.allocate_new_blocks(state, plan, *fresh);
  result.outcome = AllocateOutcome::allocated;
  if (options_.enable_caching && !arguments_.delay_cache_blocks) {
    coordinator_.publish(request_, state, total_ + arguments_.num_new_tokens);  // never draft tokens
  }
  return result;
}

}  // namespace kvpool
