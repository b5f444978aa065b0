#include "manager/block_publisher.hpp"

#include <utility>
#include <vector>

namespace kvpool {

EventDraft BlockPublisher::describe(const Request& request, std::int64_t start, std::int64_t end) const {
  EventDraft event = pool().draft_event();
  const auto tokens = request.tokens().subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(end - start));
  event->token_ids.assign(tokens.begin(), tokens.end());
  event->block_size = context_.block_size;
  event->lora_id = request.options().lora_id;
  event->lora_name = request.options().lora_name;
  event->session_id = request.options().session_id;
  event->group_idx = context_.id.value();
  return event;
}

// A block that already answers for a shorter prefix is promoted: the old keys go first.
bool BlockPublisher::make_room(BlockId block, const BlockKey& key, std::int64_t covered) const {
  if (pool().options().duplicates == DuplicatePolicy::skip) {
    const auto holder = pool().find(key);
    if (holder && holder->id != block) return false;
  }
  const std::int64_t present = pool().covered_tokens(block);
  if (present > 0 && present < covered) pool().unpublish(block);
  return true;
}

// Another thread may have been faster with the same key, or the index is full: then the store that was announced
// did not happen. Where every copy counts, it is taken back; where only the last one does, as long as nobody answers.
void BlockPublisher::publish(BlockId block, const BlockKey& key, std::int64_t covered) const {
  const bool further_key = events() && pool().covered_tokens(block) > 0;  // whose failures the pool announces itself
  if (pool().publish(block, key, covered) || !events() || further_key) return;
  if (pool().options().removal_events == RemovalEvents::last_copy && pool().find(key)) return;
  BlockRemovedEvent event;
  event.block_hashes.push_back(key.hash);
  event.group_idx = key.group.value();
  pool().append_event(std::move(event));
}

void BlockPublisher::cache_full_blocks(const Request& request, std::span<const BlockId> table, std::int64_t num_cached,
                                       std::int64_t num_full, const RetentionMask& mask) const {
  const auto first = static_cast<std::size_t>(num_cached);
  const auto count = static_cast<std::size_t>(num_full - num_cached);
  const auto stride = static_cast<std::size_t>(context_.units_per_block());
  const Run run{table.subspan(first, count), {request.block_hashes().subspan(first * stride), stride}, num_cached};
  // Blocks are only promoted in groups that register parts of them; and nothing can be left out but by a mask.
  if (mask.keeps_everything() && !events() && context_.units_per_block() == 1) {
    publish_run(run);
    return;
  }
  std::vector<BlockId> kept(run.blocks.begin(), run.blocks.end());
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t index = num_cached + static_cast<std::int64_t>(i);
    const bool wanted = kept[i] != kNullBlock && mask.keeps(index) &&
                        make_room(kept[i], {run.chain[i], context_.id}, (index + 1) * context_.block_size);
    if (!wanted) kept[i] = kNullBlock;
  }
  if (events()) {
    announce_and_publish(request, {kept, run.chain, num_cached});
  } else {
    publish_run({kept, run.chain, num_cached});
  }
}

void BlockPublisher::publish_run(const Run& run) const {
  const std::int64_t size = context_.block_size;
  pool().publish_chain(run.blocks, run.chain, context_.id, run.first * size, size);
}

// One by one: what of an announced store did not come about has to be known block by block.
void BlockPublisher::announce_and_publish(const Request& request, const Run& run) const {
  const std::int64_t size = context_.block_size;
  const auto count = static_cast<std::int64_t>(run.blocks.size());
  EventDraft event = describe(request, run.first * size, (run.first + count) * size);
  std::vector<ExtraKeys> extra_keys;
  std::int64_t cursor = 0;
  for (std::size_t i = 0; i < run.blocks.size(); ++i) {
    if (run.blocks[i] == kNullBlock) continue;
    const std::int64_t start = (run.first + static_cast<std::int64_t>(i)) * size;
    event->block_hashes.push_back(run.chain[i]);
    extra_keys.push_back(request.extra_keys(start, start + size, cursor));
  }
  if (run.first > 0) {
    event->parent_block_hash =
        request.block_hashes()[static_cast<std::size_t>(run.first * size / context_.hash_block_size) - 1];
  }
  if (!extra_keys.empty()) event->extra_keys = std::move(extra_keys);
  pool().append_event(std::move(event));
  for (std::size_t i = 0; i < run.blocks.size(); ++i) {
    if (run.blocks[i] == kNullBlock) continue;
    publish(run.blocks[i], {run.chain[i], context_.id}, (run.first + static_cast<std::int64_t>(i) + 1) * size);
  }
}

std::optional<BlockKey> BlockPublisher::cache_partial_block(const Request& request, BlockId block,
                                                            std::int64_t num_tokens) const {
  const std::span<const BlockHash> hashes = request.block_hashes();
  const std::int64_t unit = context_.hash_block_size;
  const auto units = static_cast<std::size_t>(num_tokens / unit);
  if (block == kNullBlock || units == 0 || units > hashes.size()) return std::nullopt;
  const BlockKey key{hashes[units - 1], context_.id};
  if (pool().has_key(block, key) || !make_room(block, key, num_tokens)) return key;
  if (events()) {
    EventDraft event = describe(request, num_tokens - unit, num_tokens);
    event->block_size = unit;
    event->block_hashes.push_back(key.hash);
    if (units > 1) event->parent_block_hash = hashes[units - 2];
    std::int64_t cursor = num_tokens == unit ? 0 : -1;
    event->extra_keys.emplace().push_back(request.extra_keys(num_tokens - unit, num_tokens, cursor));
    pool().append_event(std::move(event));
  }
  publish(block, key, num_tokens);
  return key;
}

void BlockPublisher::announce_hit(const Request& request, std::int64_t num_blocks) const {
  if (!events() || num_blocks <= 0) return;
  const HashChain chain{request.block_hashes(), static_cast<std::size_t>(context_.units_per_block())};
  const std::int64_t size = context_.block_size;
  EventDraft event = describe(request, 0, num_blocks * size);
  event->extra_keys.emplace();
  std::int64_t cursor = 0;
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    event->block_hashes.push_back(chain[static_cast<std::size_t>(i)]);
    event->extra_keys->push_back(request.extra_keys(i * size, (i + 1) * size, cursor));
  }
  pool().append_event(std::move(event));
}

}  // namespace kvpool
