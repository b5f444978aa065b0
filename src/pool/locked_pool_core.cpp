#include "pool/locked_pool_core.hpp"

#include <algorithm>
#include <string>

#include "pool/placement.hpp"
#include "pool/pool_layout.hpp"

namespace kvpool {

LockedPoolCore::LockedPoolCore(const BlockPoolOptions& options)
    : options_(options),
      num_shards_(PoolLayout::of(options).shards),
      number_(next_pool_number()),
      blocks_(options.num_blocks),
      capacity_(options.num_blocks - 1),
      events_(num_shards_) {
  for (std::uint32_t i = 0; i < num_shards_; ++i) shards_.push_back(std::make_unique<Shard>(options.enable_stats));
  for (std::uint32_t id = 1; id < options.num_blocks; ++id) enqueue_back(shard(id), blocks_[id]);
}

LockedPoolCore::~LockedPoolCore() {
  for (auto& shard : shards_) {
    shard->free.clear();
    shard->fenced.clear();
  }
}

std::uint32_t LockedPoolCore::here() const noexcept { return num_shards_ == 1 ? 0 : CurrentCpu::hint() % num_shards_; }

void LockedPoolCore::report(ContractBreach breach, const char* function, BlockId block) {
  report_contract_violation({breach, std::string(function) + ": block " + std::to_string(block.value())});
}
bool LockedPoolCore::known(BlockId block, const char* function) const {
  if (block.value() < num_blocks()) return true;
  report(ContractBreach::unknown_block, function, block);
  return false;
}
bool LockedPoolCore::carries(const Block& block, const BlockKey& key) {
  return std::find(block.keys.begin(), block.keys.end(), key) != block.keys.end();
}
bool LockedPoolCore::goes_left(const Block& block) const noexcept {
  return options_.free_order == FreeOrder::split && block.keys.empty();
}

void LockedPoolCore::enqueue_back(Shard& home, Block& block) {
  home.free.push_back(block);
  block.queued = true;
}
void LockedPoolCore::enqueue_front(Shard& home, Block& block) {
  home.free.push_front(block);
  block.queued = true;
}
void LockedPoolCore::add_reference(Shard& home, Block& block) {
  if (block.queued) home.free.erase(home.free.iterator_to(block));
  if (block.fenced) home.fenced.erase(home.fenced.iterator_to(block));
  block.queued = block.fenced = false;
  ++block.refs;
}
void LockedPoolCore::count_pin(Shard& home, const Block& block) noexcept {
  if (block.refs > 1) {
    home.counters.add_visibly<&PoolFlows::shared_pins>(1);
  } else {
    home.counters.add<&PoolFlows::revived_blocks>(1);
  }
}

// --- capacity ------------------------------------------------------------------------------------------

bool LockedPoolCore::reserve(std::uint32_t count, std::uint32_t keep_free) {
  drain_all(false, kFencePortion);
  if (capacity_.reserve(count, keep_free)) return true;
  drain_all(true, num_blocks());
  return capacity_.reserve(count, keep_free);
}

bool LockedPoolCore::try_reserve(std::uint32_t count, std::uint32_t keep_free) {
  if (reserve(count, keep_free)) return true;
  shards_[here()]->counters.add<&PoolStats::refused_allocations>(1);
  return false;
}

// --- references ----------------------------------------------------------------------------------------

bool LockedPoolCore::get_new_blocks(std::span<BlockId> out) {
  const std::size_t count = std::min<std::size_t>(out.size(), num_blocks());
  if (!try_reserve(static_cast<std::uint32_t>(count))) return false;
  allocate(out);
  return true;
}

void LockedPoolCore::allocate(std::span<BlockId> out) {
  RemovedKeys removed;
  std::uint64_t evicted = 0;
  std::uint64_t stolen = 0;
  const std::uint32_t first = here();
  std::size_t got = 0;
  for (std::uint32_t step = 0; got < out.size(); ++step) {
    Shard& home = *shards_[(first + step) % num_shards_];
    const std::lock_guard lock(home.mutex);
    while (got < out.size() && !home.free.empty()) {
      Block& block = home.free.front();
      evicted += remove_keys(block, collector(removed)) ? 1U : 0U;
      add_reference(home, block);
      block.generation = static_cast<std::uint16_t>((block.generation + 1U) & 0xfffU);
      stolen += step == 0 ? 0U : 1U;
      out[got++] = id_of(block);
    }
  }
  events_.append_removals(std::move(removed));
  shards_[first]->counters.add<&PoolStats::allocated_blocks>(out.size());
  shards_[first]->counters.add<&PoolStats::evicted_blocks>(evicted);
  shards_[first]->counters.add<&PoolStats::stolen_blocks>(stolen);
}

bool LockedPoolCore::touch(std::span<const BlockId> blocks) {
  drain_all(false, kFencePortion);
  std::set<BlockId> free;
  const auto touchable = [&] {
    free.clear();
    for (const BlockId id : blocks) {
      if (!known(id, "touch")) return false;
      if (id == kNullBlock) continue;
      const std::lock_guard lock(shard(id.value()).mutex);
      const Block& block = blocks_[id.value()];
      if (block.refs >= kMaxRefs) {
        report(ContractBreach::ref_overflow, "touch", id);
        return false;
      }
      if (block.queued) free.insert(id);
    }
    return true;
  };
  if (!touchable()) return false;
  if (!capacity_.reserve(free.size())) {
    drain_all(true, num_blocks());
    if (!touchable() || !capacity_.reserve(free.size())) return false;
  }
  std::uint64_t units = free.size();
  const auto touch_one = [&](std::uint32_t id) {
    Shard& home = shard(id);
    const std::lock_guard lock(home.mutex);
    Block& block = blocks_[id];
    if (block.queued && units == 0) {
      if (!capacity_.reserve(1)) return false;
      ++units;
    }
    units -= block.queued ? 1U : 0U;
    add_reference(home, block);
    count_pin(home, block);
    return true;
  };
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] == kNullBlock || touch_one(blocks[i].value())) continue;
    free_blocks(blocks.first(i));  // another thread took one of the blocks meanwhile: nothing has changed
    return false;
  }
  capacity_.credit(units);
  return true;
}

bool LockedPoolCore::pin(BlockHandle handle, const BlockKey& key, std::uint32_t& units) {
  if (handle.is_null()) return true;
  if (handle.pool != number_) {
    report(ContractBreach::foreign_handle, "pin", handle.id);
    return false;
  }
  if (!known(handle.id, "pin")) return false;
  Shard& home = shard(handle.id.value());
  const std::lock_guard lock(home.mutex);
  Block& block = blocks_[handle.id.value()];
  if (block.generation != handle.generation || !carries(block, key)) {
    home.counters.add<&PoolStats::lost_pins>(1);
    return false;
  }
  if (block.refs >= kMaxRefs) return false;
  if (block.queued && units == 0) return false;
  units -= block.queued ? 1U : 0U;
  add_reference(home, block);
  count_pin(home, block);
  return true;
}

std::size_t LockedPoolCore::pin_prefix(std::span<const BlockHandle> blocks, HashChain chain, GroupId group,
                                       std::uint32_t& units) {
  const std::size_t length = std::min(blocks.size(), chain.size());
  std::size_t pinned = 0;
  while (pinned < length && pin(blocks[pinned], {chain[pinned], group}, units)) ++pinned;
  return pinned;
}

/// Releases those of `blocks` that live on shard `number`; answers how many became free.
std::uint32_t LockedPoolCore::release_on(Shard& home, std::uint32_t number, std::span<const BlockId> blocks,
                                         std::uint64_t fence, std::vector<BlockId>& at_fault) {
  std::vector<Block*> left;
  std::uint32_t freed = 0;
  std::uint64_t released = 0;
  std::uint64_t references = 0;
  const std::lock_guard lock(home.mutex);
  for (const BlockId id : blocks) {
    if (id == kNullBlock || id.value() >= num_blocks() || shard_of(id.value()) != number) continue;
    Block& block = blocks_[id.value()];
    if (block.refs == 0) {
      at_fault.push_back(id);
      continue;
    }
    block.fence = std::max(block.fence, fence);
    ++references;
    if (--block.refs > 0) continue;
    ++released;
    if (block.fence > fence_passed_.load(std::memory_order_acquire)) {
      block.fenced = true;
      home.fenced.push_back(block);
      continue;
    }
    ++freed;
    if (goes_left(block)) {
      left.push_back(&block);
    } else {
      enqueue_back(home, block);
    }
  }
  for (auto it = left.rbegin(); it != left.rend(); ++it) enqueue_front(home, **it);
  home.counters.add<&PoolStats::released_blocks>(released);
  home.counters.add_visibly<&PoolFlows::shared_releases>(references - released);
  return freed;
}

bool LockedPoolCore::free_blocks(std::span<const BlockId> blocks, std::uint64_t fence) {
  bool good = true;
  std::vector<bool> involved(num_shards_, false);
  for (const BlockId id : blocks) {
    if (id == kNullBlock) continue;
    if (known(id, "free_blocks")) {
      involved[shard_of(id.value())] = true;
    } else {
      good = false;
    }
  }
  std::vector<BlockId> at_fault;
  for (std::uint32_t number = 0; number < num_shards_; ++number) {
    if (involved[number]) capacity_.credit(release_on(*shards_[number], number, blocks, fence, at_fault));
  }
  for (const BlockId id : at_fault) report(ContractBreach::double_free, "free_blocks", id);
  return good && at_fault.empty();
}

bool LockedPoolCore::free_blocks(std::span<const BlockHandle> blocks) {
  bool good = true;
  std::vector<BlockId> ids;
  for (const BlockHandle& block : blocks) {
    if (block.is_null()) continue;
    const bool foreign = block.pool != number_;
    if (!foreign && !known(block.id, "free_blocks")) {
      good = false;
    } else if (foreign || handle(block.id).generation != block.generation) {
      report(foreign ? ContractBreach::foreign_handle : ContractBreach::stale_handle, "free_blocks", block.id);
      good = false;
    } else {
      ids.push_back(block.id);
    }
  }
  return free_blocks(std::span<const BlockId>(ids)) && good;
}

// --- fences --------------------------------------------------------------------------------------------

/// Moves waiting blocks whose fence has passed into the free list: from the front, or wherever they stand.
std::uint32_t LockedPoolCore::drain(Shard& home, std::size_t limit, bool out_of_order) {
  std::uint32_t drained = 0;
  const std::uint64_t passed = fence_passed_.load(std::memory_order_acquire);
  const auto unfence = [&](Block& block) {
    block.fenced = false;
    ++drained;
    goes_left(block) ? enqueue_front(home, block) : enqueue_back(home, block);
  };
  while (drained < limit && !home.fenced.empty() && home.fenced.front().fence <= passed) {
    Block& block = home.fenced.front();
    home.fenced.pop_front();
    unfence(block);
  }
  if (!out_of_order) return drained;
  std::vector<Block*> passed_ones;
  for (auto it = home.fenced.begin(); it != home.fenced.end();) {
    Block& block = *it++;
    if (block.fence > passed) continue;
    home.fenced.erase(home.fenced.iterator_to(block));
    passed_ones.push_back(&block);
  }
  std::sort(passed_ones.begin(), passed_ones.end());
  for (Block* block : passed_ones) unfence(*block);
  return drained;
}

void LockedPoolCore::drain_all(bool out_of_order, std::size_t limit) {
  if (fence_passed_.load(std::memory_order_acquire) == 0) return;  // no fence was ever passed
  for (auto& home : shards_) {
    std::uint32_t drained = 0;
    {
      const std::lock_guard lock(home->mutex);
      drained = drain(*home, limit, out_of_order);
    }
    capacity_.credit(drained);
  }
}

void LockedPoolCore::advance_fence(std::uint64_t value) {
  std::uint64_t passed = fence_passed_.load(std::memory_order_acquire);
  while (passed < value && !fence_passed_.compare_exchange_weak(passed, value, std::memory_order_acq_rel)) {
  }
  drain_all(false, kFencePortion);
}

}  // namespace kvpool
