// KVCacheManager by sequence; see by_request.cpp for the table and whole_cache.cpp for the rest.
#include "kvpool/manager/kv_cache_manager.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kvpool/foundation/contract.hpp"
#include "kvpool/manager/residency_metrics.hpp"
#include "manager/block_publisher.hpp"
#include "manager/coordinator_factory.hpp"
#include "manager/manager_factory.hpp"
#include "manager/manager_impl.hpp"
#include "manager/slot_allocation.hpp"

namespace kvpool {

bool KVCacheBlocks::empty() const noexcept {
  return std::all_of(groups.begin(), groups.end(), [](const auto& group) { return group.empty(); });
}

std::vector<std::vector<BlockId>> KVCacheBlocks::block_ids() const {
  std::vector<std::vector<BlockId>> ids(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    ids[g].reserve(groups[g].size());
    for (const BlockHandle& block : groups[g]) ids[g].push_back(block.id);
  }
  return ids;
}

// --- Sequence -------------------------------------------------------------------------------------------------

Sequence::Sequence(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;

ExclusiveUse::ExclusiveUse(SequenceState& state, const char* operation)
    : state_(state), granted_(!state.busy.exchange(true, std::memory_order_acquire)) {
  if (granted_) return;
  report_contract_violation(
      {ContractBreach::wrong_thread, fmt::format("{}: another call is inside the same sequence", operation)});
}

// --- construction -----------------------------------------------------------------------------------------------

namespace {

BlockPoolOptions pool_options(const KVCacheConfig& config, const KVCacheManagerOptions& options) {
  BlockPoolOptions pool;
  pool.num_blocks = static_cast<std::uint32_t>(config.num_blocks);
  pool.enable_caching = options.enable_caching;
  pool.free_order = options.free_order;
  pool.duplicates = options.duplicates;
  pool.num_shards = options.num_shards;
  pool.enable_events = options.enable_kv_cache_events;
  pool.removal_events = options.removal_events;
  return pool;
}

}  // namespace

KVCacheManager::Impl::Impl(KVCacheConfig kv_config, KVCacheManagerOptions manager_options)
    : config(std::move(kv_config)), options(std::move(manager_options)), pool(pool_options(config, options)) {
  if (options.residency_metrics) options.residency_metrics->attach(pool.num_blocks());
  coordinator = make_coordinator(config, options, pool);
  watermark_blocks = static_cast<std::int64_t>(options.watermark * static_cast<double>(config.num_blocks));
  zeroing = needs_zeroing(config);
  for (const KVCacheGroup& group : config.groups) {
    event_info.push_back({std::string(event_kind(group.spec)), spec_traits(group.spec)->window});
  }
}

Result<std::unique_ptr<KVCacheManager>> KVCacheManager::create(KVCacheConfig config, KVCacheManagerOptions options) {
  if (Status status = validate_manager_config(config, options); !status) return status.error();
  auto impl = std::make_unique<Impl>(std::move(config), std::move(options));
  return std::unique_ptr<KVCacheManager>(new KVCacheManager(std::move(impl)));
}

KVCacheManager::KVCacheManager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KVCacheManager::~KVCacheManager() = default;

BlockPool& KVCacheManager::pool() noexcept { return impl_->pool; }
const KVCacheConfig& KVCacheManager::config() const noexcept { return impl_->config; }
const KVCacheManagerOptions& KVCacheManager::options() const noexcept { return impl_->options; }
double KVCacheManager::usage() const noexcept { return impl_->pool.usage(); }

// --- by sequence --------------------------------------------------------------------------------------------------

Sequence KVCacheManager::make_sequence() { return Sequence(std::make_unique<Sequence::State>(*impl_->coordinator)); }

bool KVCacheManager::prefix_cache_lookup_enabled(const Request& request) const noexcept {
  return impl_->options.enable_caching && !request.options().skip_reading_prefix_cache;
}

PrefixHit KVCacheManager::get_computed_blocks(const Request& request) const {
  PrefixHit result;
  if (!prefix_cache_lookup_enabled(request)) {
    result.blocks.groups.resize(impl_->coordinator->num_groups());
    return result;
  }
  // One token less than there are: something must be computed to get an output.
  CoordinatedHit hit = impl_->coordinator->find_longest_cache_hit(request.block_hashes(), request.num_tokens() - 1);
  if (hit.length > 0 && impl_->options.enable_kv_cache_events && request.options().full_event_report) {
    for (std::size_t g = 0; g < hit.blocks.groups.size(); ++g) {
      const GroupContext& context = impl_->coordinator->manager(g).context();
      BlockPublisher(context).announce_hit(
          request, std::min(static_cast<std::int64_t>(hit.blocks.groups[g].size()), hit.length / context.block_size));
    }
  }
  result.blocks = std::move(hit.blocks);
  result.num_computed_tokens = hit.length;
  if (hit.uncached_common > 0) result.shared_prefix_boundary = hit.length + hit.uncached_common;
  return result;
}

PrefixHit KVCacheManager::get_computed_blocks_for_connector(const Request& request) const {
  if (prefix_cache_lookup_enabled(request)) {
    std::optional<PrefixHit> hit =
        impl_->coordinator->find_hit_per_group(request.block_hashes(), request.num_tokens() - 1);
    if (hit) return std::move(*hit);
  }
  return get_computed_blocks(request);
}

Result<KVCacheBlocks> KVCacheManager::truncate_computed_blocks(const KVCacheBlocks& blocks,
                                                               std::int64_t num_tokens) const {
  const CacheCoordinator& coordinator = *impl_->coordinator;
  if (num_tokens < 0 || blocks.groups.size() != coordinator.num_groups()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a hit of {} groups cannot be cut to {} tokens", blocks.groups.size(), num_tokens)};
  }
  KVCacheBlocks result;
  for (std::size_t g = 0; g < blocks.groups.size(); ++g) {
    const SingleTypeManager& manager = coordinator.manager(g);
    const std::int64_t length = num_tokens / manager.block_size();
    const auto available = static_cast<std::int64_t>(blocks.groups[g].size());
    if (num_tokens % manager.block_size() != 0 || (!manager.is_state() && available < length)) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("{} tokens do not end a block of group {} ({} blocks of {} tokens)", num_tokens, g,
                               available, manager.block_size())};
    }
    const auto end = blocks.groups[g].begin() + std::min(length, available);
    result.groups.emplace_back(blocks.groups[g].begin(), end);
  }
  return result;
}

Result<AllocatedSlots> KVCacheManager::allocate_slots(Request& request, Sequence& sequence,
                                                      const AllocateSlots& arguments) {
  const ExclusiveUse use(*sequence.state_, "allocate_slots");
  if (!use.granted()) return Error{ErrorCode::invalid_argument, "the request is in use by another thread"};
  SlotAllocation allocation(*impl_->coordinator, impl_->options, impl_->watermark_blocks, request, arguments);
  if (Status status = allocation.validate(*sequence.state_); !status) return status.error();
  return allocation.run(*sequence.state_);
}

Result<AllocateOutcome> KVCacheManager::can_allocate_slots(const Request& request, const Sequence& sequence,
                                                           const AllocateSlots& arguments) const {
  const SlotAllocation allocation(*impl_->coordinator, impl_->options, impl_->watermark_blocks, request, arguments);
  if (Status status = allocation.validate(*sequence.state_); !status) return status.error();
  return allocation.fits(*sequence.state_) ? AllocateOutcome::allocated : AllocateOutcome::no_capacity;
}

std::int64_t KVCacheManager::num_blocks_to_full_length(const Request& request, const Sequence& sequence) const {
  AllocationPlan plan;
  plan.demand.tokens = std::min(request.num_tokens(), impl_->options.max_model_len);
  plan.demand.main_tokens = plan.demand.tokens;
  plan.demand.total_computed = request.num_computed_tokens;
  plan.demand.local_computed = request.num_computed_tokens;
  plan.demand.apply_admission_cap = true;
  return std::max<std::int64_t>(0, impl_->coordinator->blocks_to_allocate(*sequence.state_, plan).announced);
}

void KVCacheManager::cache_blocks(Request& request, Sequence& sequence, std::int64_t num_computed_tokens) {
  const ExclusiveUse use(*sequence.state_, "cache_blocks");
  if (!use.granted() || !impl_->options.enable_caching) return;
  impl_->coordinator->publish(request, *sequence.state_, num_computed_tokens);
}

void KVCacheManager::free(Sequence& sequence) {
  const ExclusiveUse use(*sequence.state_, "free");
  if (use.granted()) impl_->coordinator->free(*sequence.state_);
}

std::vector<BlockId> KVCacheManager::pop_blocks_for_free(Sequence& sequence) {
  const ExclusiveUse use(*sequence.state_, "pop_blocks_for_free");
  if (!use.granted()) return {};
  return impl_->coordinator->pop_blocks(*sequence.state_);
}

void KVCacheManager::remove_skipped_blocks(Request& request, Sequence& sequence, std::int64_t num_computed_tokens) {
  const ExclusiveUse use(*sequence.state_, "remove_skipped_blocks");
  if (!use.granted()) return;
  impl_->coordinator->remove_skipped_blocks(*sequence.state_, num_computed_tokens, request.num_prompt_tokens());
}

}  // namespace kvpool
