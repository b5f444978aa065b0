// LockedPoolCore: keys, look-up, inspection.
#include <algorithm>
#include <string>

#include "block/key_words.hpp"
#include "pool/locked_pool_core.hpp"

namespace kvpool {

/// Takes all keys from a block whose shard is locked.
bool LockedPoolCore::remove_keys(Block& block, RemovedKeys* removed) {
  if (block.keys.empty()) return false;
  const std::uint32_t number = id_of(block).value();
  for (const BlockKey& key : block.keys) {
    bool last = false;
    {
      Map::accessor entry;
      if (index_.find(entry, key)) {
        std::erase(entry->second, number);
        last = entry->second.empty();
        if (last) index_.erase(entry);
      }
    }
    if (removed == nullptr || (options_.removal_events == RemovalEvents::last_copy && !last)) continue;
    removed->push_back(KeyWords(key));
  }
  block.keys.clear();
  block.covered = 0;
  return true;
}

/// Enters a key for a block whose shard is locked.
bool LockedPoolCore::enter(Block& block, const BlockKey& key, std::int64_t covered, bool keep_duplicate,
                           bool& duplicate) {
  if (carries(block, key)) return false;
  Map::accessor entry;
  index_.insert(entry, key);
  duplicate = !entry->second.empty();
  if (duplicate && !keep_duplicate) return false;
  entry->second.push_back(id_of(block).value());
  if (block.keys.empty()) block.covered = std::max<std::int64_t>(covered, 0);
  block.keys.push_back(key);
  return true;
}

std::optional<BlockHandle> LockedPoolCore::find(const BlockKey& key) const {
  for (;;) {
    std::uint32_t number = 0;
    {
      Map::const_accessor entry;
      if (!index_.find(entry, key)) return std::nullopt;
      number = entry->second.front();
    }
    // The map's lock is given up before the shard's is taken: the order is shard, then map.
    const std::lock_guard lock(shard(number).mutex);
    const Block& block = blocks_[number];
    if (carries(block, key)) return BlockHandle{BlockId{number}, block.generation, number_};
  }
}

std::size_t LockedPoolCore::find_prefix(HashChain chain, GroupId group, std::span<BlockHandle> out) const {
  const std::size_t length = std::min(chain.size(), out.size());
  for (std::size_t i = 0; i < length; ++i) {
    const auto found = find({chain[i], group});
    if (!found) return i;
    out[i] = *found;
  }
  return length;
}

bool LockedPoolCore::publish(BlockId id, const BlockKey& key, std::int64_t covered_tokens) {
  if (!options_.enable_caching || key.group.value() > KeyWords::kMaxGroup) return false;
  if (id == kNullBlock || !known(id, "publish")) return false;
  Shard& home = shard(id.value());
  bool duplicate = false;
  bool done = false;
  {
    const std::lock_guard lock(home.mutex);
    Block& block = blocks_[id.value()];
    done = block.refs > 0 && enter(block, key, covered_tokens, options_.duplicates == DuplicatePolicy::keep, duplicate);
  }
  home.counters.add<&PoolStats::published_keys>(done ? 1 : 0);
  home.counters.add<&PoolStats::duplicate_keys>(duplicate ? 1 : 0);
  return done;
}

std::size_t LockedPoolCore::publish_chain(std::span<const BlockId> blocks, HashChain chain, GroupId group,
                                          std::int64_t tokens_before, std::int64_t block_tokens) {
  const std::size_t length = std::min(blocks.size(), chain.size());
  std::size_t published = 0;
  for (std::size_t i = 0; i < length; ++i) {
    const std::int64_t covered = tokens_before + (static_cast<std::int64_t>(i + 1) * block_tokens);
    published += publish(blocks[i], {chain[i], group}, covered) ? 1U : 0U;
  }
  return published;
}

bool LockedPoolCore::unpublish(BlockId id) {
  if (!known(id, "unpublish")) return false;
  const std::lock_guard lock(shard(id.value()).mutex);
  RemovedKeys removed;
  const bool had = remove_keys(blocks_[id.value()], collector(removed));
  events_.append_removals(std::move(removed));
  return had;
}

bool LockedPoolCore::evict_blocks(std::span<const BlockId> blocks) {
  bool good = true;
  for (const BlockId id : blocks) {
    if (known(id, "evict_blocks")) {
      unpublish(id);
    } else {
      good = false;
    }
  }
  return good;
}

bool LockedPoolCore::move_block_hashes(BlockId source, BlockId target) {
  if (source == target || !known(source, "move_block_hashes") || !known(target, "move_block_hashes")) return false;
  Shard& from_shard = shard(source.value());
  Shard& to_shard = shard(target.value());
  std::unique_lock first(from_shard.mutex, std::defer_lock);
  std::unique_lock second(to_shard.mutex, std::defer_lock);
  if (&from_shard == &to_shard) {
    first.lock();
  } else {
    std::lock(first, second);
  }
  Block& from = blocks_[source.value()];
  Block& to = blocks_[target.value()];
  if (from.keys.empty() || to.refs == 0 || !to.keys.empty()) return false;
  const std::vector<BlockKey> keys = from.keys;
  const std::int64_t covered = from.covered;
  bool duplicate = false;
  for (const BlockKey& key : keys) static_cast<void>(enter(to, key, covered, true, duplicate));
  remove_keys(from, nullptr);
  return true;
}

bool LockedPoolCore::reset_prefix_cache(std::uint32_t num_permanent) {
  drain_all(true, num_blocks());
  if (capacity_.free() + num_permanent != num_blocks() - 1) return false;
  for (Block& block : blocks_) remove_keys(block, nullptr);
  append_event(AllBlocksClearedEvent{});
  return true;
}

std::optional<BlockKey> LockedPoolCore::primary_key(BlockId id) const {
  if (!known(id, "primary_key")) return std::nullopt;
  const std::lock_guard lock(shard(id.value()).mutex);
  const Block& block = blocks_[id.value()];
  if (block.keys.empty()) return std::nullopt;
  return block.keys.front();
}

std::int64_t LockedPoolCore::covered_tokens(BlockId id) const {
  if (!known(id, "covered_tokens")) return 0;
  const std::lock_guard lock(shard(id.value()).mutex);
  return blocks_[id.value()].covered;
}

bool LockedPoolCore::has_key(BlockId id, const BlockKey& key) const {
  if (!known(id, "has_key")) return false;
  const std::lock_guard lock(shard(id.value()).mutex);
  return carries(blocks_[id.value()], key);
}

bool LockedPoolCore::is_block_writable(BlockId id) const noexcept {
  if (id == kNullBlock || id.value() >= num_blocks()) return false;
  const std::lock_guard lock(shard(id.value()).mutex);
  return blocks_[id.value()].refs == 1 && blocks_[id.value()].keys.empty();
}

std::uint32_t LockedPoolCore::ref_count(BlockId id) const noexcept {
  if (id.value() >= num_blocks()) return 0;
  const std::lock_guard lock(shard(id.value()).mutex);
  return blocks_[id.value()].refs;
}

std::optional<std::uint64_t> LockedPoolCore::sharing_changes() const noexcept {
  if (!options_.enable_stats) return std::nullopt;
  std::uint64_t sum = 0;
  for (const auto& home : shards_) sum += home->counters.sharing_changes();
  return sum;
}

BlockHandle LockedPoolCore::handle(BlockId id) const noexcept {
  if (id.value() >= num_blocks()) return {id, 0, number_};
  const std::lock_guard lock(shard(id.value()).mutex);
  return {id, blocks_[id.value()].generation, number_};
}

void LockedPoolCore::append_event(KVEvent event) {
  if (options_.enable_events) events_.append(std::move(event), here());
}

void LockedPoolCore::append_event(EventDraft&& draft) {
  if (options_.enable_events) events_.append(std::move(draft));
}

// --- inspection ----------------------------------------------------------------------------------------

PoolCounts LockedPoolCore::counts() const noexcept {
  PoolCounts counts;
  counts.usable = num_blocks() - 1;
  std::uint64_t queued = 0;
  for (std::uint32_t id = 1; id < num_blocks(); ++id) {
    const std::lock_guard lock(shard(id).mutex);
    const Block& block = blocks_[id];
    counts.cached += block.keys.empty() ? 0U : 1U;
    counts.referenced += block.refs > 0 ? 1U : 0U;
    counts.fenced += block.fenced ? 1U : 0U;
    queued += block.queued ? 1U : 0U;
  }
  counts.free = capacity_.free();
  counts.reserved = queued > counts.free ? queued - counts.free : 0;
  return counts;
}

PoolStats LockedPoolCore::stats() const noexcept {
  PoolStats sum;
  for (const auto& home : shards_) home->counters.add_to(sum);
  return sum;
}

std::vector<PoolStats> LockedPoolCore::shard_stats() const {
  std::vector<PoolStats> shards(shards_.size());
  for (std::size_t i = 0; i < shards_.size(); ++i) shards_[i]->counters.add_to(shards[i]);
  return shards;
}

BlockSnapshot LockedPoolCore::snapshot(BlockId id) const {
  BlockSnapshot shot;
  shot.id = id;
  if (!known(id, "snapshot")) return shot;
  const Block& block = blocks_[id.value()];
  shot.ref_count = block.refs;
  shot.generation = block.generation;
  if (!block.keys.empty()) shot.primary_key = block.keys.front();
  shot.covered_tokens = block.covered;
  shot.free = block.queued;
  shot.fenced = block.fenced;
  shot.is_null = id == kNullBlock;
  return shot;
}

std::vector<BlockId> LockedPoolCore::free_order() const {
  std::vector<BlockId> order;
  for (const auto& home : shards_) {
    for (const Block& block : home->free) order.push_back(id_of(block));
  }
  return order;
}

std::size_t LockedPoolCore::num_cached_keys() const { return index_.size(); }

Status LockedPoolCore::check_invariants() const {
  const auto broken = [](const std::string& what) { return Status(ErrorCode::internal, what); };
  std::size_t queued = 0;
  std::size_t entries = 0;
  for (const auto& home : shards_) queued += home->free.size();
  for (const Block& block : blocks_) {
    queued -= block.queued ? 1U : 0U;
    entries += block.keys.size();
    if (block.queued && (block.refs > 0 || block.fenced)) {
      return broken("block " + std::to_string(id_of(block).value()) + " is free and referenced");
    }
  }
  if (queued != 0) return broken("the free lists and the blocks' own marks do not agree");
  for (const auto& [key, holders] : index_) {
    entries -= holders.size();
    for (const std::uint32_t holder : holders) {
      if (!carries(blocks_[holder], key)) return broken("the index leads to a block without the key: " + key.to_hex());
    }
  }
  if (entries != 0) return broken("the index and the blocks' keys do not agree");
  return {};
}

}  // namespace kvpool
