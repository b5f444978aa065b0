#include "tools/launch/rank/rank_pool.hpp"

#include <fmt/format.h>

#include <utility>

#include "kvpool/config/kv_cache_groups.hpp"
#include "kvpool/config/memory_plan.hpp"
#include "kvpool/multigpu/rank_coordinator.hpp"

namespace kvpool::launch {
namespace {

constexpr std::int64_t kMinBlocks = 2;  // the placeholder and one that can be used
// A new pool costs the content of the old one: small movements of memory are not worth it.
constexpr std::int64_t kShrinkPart = 16;  // by a sixteenth
constexpr std::int64_t kGrowPart = 4;     // by a quarter

}  // namespace

RankPool::RankPool(const ModelConfig& model, const ExecutorOptions& executor, RankPoolOptions options,
                   Communicator& communicator, RankLog& log)
    : config_(model), executor_(executor), options_(std::move(options)), communicator_(communicator), log_(log) {}

Status RankPool::prepare(const Status& device_problem) {
  const auto slice =
      head_slice_of(config_.num_query_heads, config_.num_kv_heads, communicator_.rank(), communicator_.world_size());
  if (!slice.ok()) return slice.status();
  auto groups = get_kv_cache_groups(layer_specs(config_, *slice, options_.profile.block_size));
  if (!groups.ok()) return groups.status();
  LayoutContext context;
  context.max_model_len = options_.max_model_len;
  context.scheduler_block_size = options_.profile.block_size;
  context.hash_block_size = options_.profile.block_size;
  context.block_order = "HND";
  layout_ = canonical_layout(*groups, context);
  block_bytes_ = bytes_per_block(*groups);
  profile_.emplace(config_, *slice, options_.profile, executor_, communicator_);
  auto measured = device_problem.ok() ? profile_->measure() : Result<RankMemory>(device_problem.error());
  // Whatever went wrong here, the others are in the first collectives and must get past them to hear of it.
  if (!measured.ok() && !profile_->warmed_up()) (void)profile_->warm_up();
  if (measured.ok()) {
    memory_ = *measured;
    log_.write(format_ledger(profile_->profile().ledger));
  }
  storage_.emplace(config_, *slice, *std::move(groups), executor_.device, memory_.available,
                   [this](std::int64_t bytes) { return profile_->verify_beside(bytes); });
  memory_.num_blocks = storage_->limit();
  return agree(measured.status());
}

Result<bool> RankPool::agree_again() {
  storage_->set_available(profile_->available_now(storage_->resident_bytes()));
  log_.write(fmt::format("a rank asks for a new agreement: this one can hold {} blocks now", storage_->limit()));
  const int before = storage_->generation();
  if (Status status = agree({}); !status.ok()) return status.error();
  return storage_->generation() != before;
}

Status RankPool::agree(const Status& profiling) {
  RankView view;
  view.profiling = profiling;
  view.layout = layout_;
  view.limits = {storage_->limit()};
  AgreementOptions options;
  options.deadline = options_.deadline;
  options.min_blocks = {kMinBlocks};
  const auto agreement = RankCoordinator(communicator_, options).agree(view, *storage_);
  if (!agreement.ok()) return agreement.status();
  own_limit_ = view.limits[0];
  agreements_.push_back(agreement->num_blocks[0]);
  log_.write(fmt::format("agreed on {} blocks of {} bytes in round {}; this rank could hold {}",
                         agreement->num_blocks[0], block_bytes_, agreement->commit_rounds, own_limit_));
  return {};
}

bool RankPool::memory_has_changed() {
  const std::int64_t agreed = agreements_.back();
  const std::int64_t now = profile_->available_now(storage_->resident_bytes()) / block_bytes_;
  const bool shrunk = now < agreed - agreed / kShrinkPart;
  const bool grown = own_limit_ <= agreed && now > agreed + agreed / kGrowPart;
  return shrunk || grown;
}

}  // namespace kvpool::launch
