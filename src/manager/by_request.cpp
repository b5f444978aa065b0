// KVCacheManager by request id: the table in front of the sequences.
#include <utility>

#include "manager/manager_impl.hpp"

namespace kvpool {

Result<AllocatedSlots> KVCacheManager::allocate_slots(Request& request, const AllocateSlots& arguments) {
  Impl::Table::accessor entry;
  const bool is_new = impl_->sequences.insert(entry, request.id());
  if (is_new) entry->second = std::make_unique<Sequence>(make_sequence());
  Result<AllocatedSlots> result = allocate_slots(request, *entry->second, arguments);
  if (is_new && (!result || result->outcome != AllocateOutcome::allocated)) impl_->sequences.erase(entry);
  return result;
}

void KVCacheManager::cache_blocks(Request& request, std::int64_t num_computed_tokens) {
  Impl::Table::accessor entry;
  if (impl_->sequences.find(entry, request.id())) cache_blocks(request, *entry->second, num_computed_tokens);
}

void KVCacheManager::free(const Request& request) {
  Impl::Table::accessor entry;
  if (!impl_->sequences.find(entry, request.id())) return;
  free(*entry->second);
  impl_->sequences.erase(entry);
}

std::vector<BlockId> KVCacheManager::pop_blocks_for_free(const Request& request) {
  Impl::Table::accessor entry;
  if (!impl_->sequences.find(entry, request.id())) return {};
  std::vector<BlockId> blocks = pop_blocks_for_free(*entry->second);
  impl_->sequences.erase(entry);
  return blocks;
}

void KVCacheManager::remove_skipped_blocks(Request& request, std::int64_t num_computed_tokens) {
  Impl::Table::accessor entry;
  if (impl_->sequences.find(entry, request.id())) remove_skipped_blocks(request, *entry->second, num_computed_tokens);
}

std::vector<std::vector<BlockId>> KVCacheManager::get_block_ids(const std::string& request_id) const {
  Impl::Table::const_accessor entry;
  if (impl_->sequences.find(entry, request_id)) return get_block_ids(*entry->second);
  return std::vector<std::vector<BlockId>>(impl_->coordinator->num_groups());
}

std::vector<std::int64_t> KVCacheManager::get_num_common_prefix_blocks(const std::string& request_id) const {
  Impl::Table::accessor entry;
  if (impl_->sequences.find(entry, request_id)) return get_num_common_prefix_blocks(*entry->second);
  return std::vector<std::int64_t>(impl_->coordinator->num_groups(), 0);
}

std::int64_t KVCacheManager::estimate_cached_tokens(const std::string& request_id) const {
  Impl::Table::const_accessor entry;
  return impl_->sequences.find(entry, request_id) ? estimate_cached_tokens(*entry->second) : 0;
}

std::vector<PartialTailOffload> KVCacheManager::take_partial_tail_offloads(const std::string& request_id) {
  Impl::Table::accessor entry;
  if (!impl_->sequences.find(entry, request_id)) return {};
  return take_partial_tail_offloads(*entry->second);
}

}  // namespace kvpool
