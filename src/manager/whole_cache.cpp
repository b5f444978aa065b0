// KVCacheManager: operations on the whole cache.
#include "kvpool/manager/residency_metrics.hpp"
#include "manager/manager_impl.hpp"

namespace kvpool {

void KVCacheManager::new_step_starts() { impl_->coordinator->new_step_starts(); }

bool KVCacheManager::evict_blocks(std::span<const BlockId> blocks) {
  if (impl_->options.residency_metrics) {
    for (const BlockId block : blocks) impl_->options.residency_metrics->on_block_evicted(block);
  }
  return impl_->pool.evict_blocks(blocks);
}

bool KVCacheManager::reset_prefix_cache() {
  std::size_t permanent = 0;
  for (std::size_t g = 0; g < impl_->coordinator->num_groups(); ++g) {
    permanent += impl_->coordinator->manager(g).permanent_blocks().size();
  }
  if (!impl_->pool.reset_prefix_cache(static_cast<std::uint32_t>(permanent))) return false;
  if (impl_->options.residency_metrics) impl_->options.residency_metrics->reset();
  impl_->counters.note_reset();
  return true;
}

std::vector<KVEvent> KVCacheManager::take_events() {
  std::vector<KVEvent> events = impl_->pool.take_events();
  for (KVEvent& event : events) {
    auto* stored = std::get_if<BlockStoredEvent>(&event);
    if (stored == nullptr || !stored->group_idx || *stored->group_idx >= impl_->event_info.size()) continue;
    const GroupEventInfo& info = impl_->event_info[*stored->group_idx];
    stored->kv_cache_spec_kind = info.kind;
    stored->kv_cache_spec_sliding_window = info.sliding_window;
  }
  return events;
}

std::vector<BlockCopy> KVCacheManager::take_block_copies() {
  std::vector<BlockCopy> copies;
  for (std::size_t g = 0; g < impl_->coordinator->num_groups(); ++g) {
    const std::vector<BlockCopy> more = impl_->coordinator->manager(g).take_copies();
    copies.insert(copies.end(), more.begin(), more.end());
  }
  return copies;
}

bool KVCacheManager::needs_kv_cache_zeroing() const noexcept { return impl_->zeroing; }

std::vector<BlockId> KVCacheManager::take_new_block_ids() {
  std::vector<BlockId> ids;
  for (std::size_t g = 0; g < impl_->coordinator->num_groups(); ++g) {
    const std::vector<BlockId> more = impl_->coordinator->manager(g).take_new_block_ids();
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

std::span<const BlockId> KVCacheManager::permanent_blocks(GroupId group) const {
  return impl_->coordinator->manager(group.value()).permanent_blocks();
}

void KVCacheManager::record_prefix_cache_stats(const Request& request, std::int64_t hit_tokens) {
  if (!impl_->options.log_stats || !prefix_cache_lookup_enabled(request)) return;
  impl_->counters.record(request.num_tokens(), hit_tokens, request.num_preemptions > 0);
}

std::optional<PrefixCacheStats> KVCacheManager::make_prefix_cache_stats() {
  if (!impl_->options.log_stats) return std::nullopt;
  return impl_->counters.take();
}

}  // namespace kvpool
