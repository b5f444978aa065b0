// The oracle: a pool as simple as the rules, with one list of free blocks, one map of keys and one mutex.
// It shares no code with the pool it judges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvpool/block/block_hash.hpp"
#include "kvpool/block/block_id.hpp"
#include "kvpool/pool/block_pool_options.hpp"
#include "kvpool/pool/kv_event.hpp"
#include "kvpool/pool/pool_stats.hpp"

namespace kvpool {

class OraclePool {
 public:
  enum class Fault { none, unknown_block, double_free, ref_overflow };

  explicit OraclePool(const BlockPoolOptions& options) : options_(options), blocks_(options.num_blocks) {
    if (options.num_blocks == 0) throw std::invalid_argument("a pool needs at least one block");
    for (std::uint32_t id = 1; id < options.num_blocks; ++id) push_back(id);
  }

  std::uint32_t num_free() const {
    const std::lock_guard lock(mutex_);
    return free_count();
  }

  bool reserve(std::uint32_t count, std::uint32_t keep_free) {
    const std::lock_guard lock(mutex_);
    drain(kFencePortion);
    if (std::uint64_t{free_count()} < std::uint64_t{count} + keep_free) drain_all();
    if (std::uint64_t{free_count()} < std::uint64_t{count} + keep_free) {
      ++stats_.refused_allocations;
      return false;
    }
    reserved_ += count;
    return true;
  }

  void give_back(std::uint32_t count) {
    const std::lock_guard lock(mutex_);
    reserved_ -= count;
  }

  void allocate(std::span<BlockId> out) {
    const std::lock_guard lock(mutex_);
    for (BlockId& slot : out) {
      const std::uint32_t id = order_.front();
      order_.pop_front();
      Block& block = blocks_[id];
      block.queued = false;
      if (remove_all(id)) ++stats_.evicted_blocks;
      block.refs = 1;
      block.generation = (block.generation + 1U) & 0xfffU;
      slot = BlockId{id};
    }
    reserved_ -= static_cast<std::uint32_t>(out.size());
    stats_.allocated_blocks += out.size();
  }

  /// Adds references; a free block takes one unit of the free capacity.
  bool touch(std::span<const BlockId> ids, Fault& fault) {
    const std::lock_guard lock(mutex_);
    drain(kFencePortion);
    if (could_touch(ids, fault)) return apply_touch(ids);
    if (fault != Fault::none) return false;
    drain_all();
    return could_touch(ids, fault) && apply_touch(ids);
  }

  bool could_touch(std::span<const BlockId> ids, Fault& fault) const {
    std::set<std::uint32_t> newly_used;
    for (const BlockId id : ids) {
      if (id.value() >= blocks_.size()) fault = Fault::unknown_block;
      if (fault != Fault::none) return false;
      const Block& block = blocks_[id.value()];
      if (!id_is_null(id) && block.refs >= kMaxRefs) fault = Fault::ref_overflow;
      if (!id_is_null(id) && block.queued) newly_used.insert(id.value());
    }
    return fault == Fault::none && newly_used.size() <= free_count();
  }

  bool apply_touch(std::span<const BlockId> ids) {
    for (const BlockId id : ids) {
      if (!id_is_null(id)) take_reference(id.value());
    }
    return true;
  }

  enum class Pin { refused, shared, from_free };
  Pin pin(BlockId id, std::uint16_t generation, const BlockKey& key, bool may_take_free) {
    const std::lock_guard lock(mutex_);
    Block& block = blocks_[id.value()];
    if (block.generation != generation || !carries(block, key) || block.refs >= kMaxRefs) return Pin::refused;
    const bool was_free = block.queued;
    if (was_free && !may_take_free) return Pin::refused;
    take_reference(id.value());
    if (was_free) --reserved_;
    return was_free ? Pin::from_free : Pin::shared;
  }

  /// Fault of each block at fault is passed to `on_fault(id, fault)`.
  template <class OnFault>
  bool release(std::span<const BlockId> ids, std::uint64_t fence, OnFault on_fault) {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint32_t> front;
    bool good = true;
    for (const BlockId id : ids) {
      if (id_is_null(id)) continue;
      if (id.value() >= blocks_.size() || blocks_[id.value()].refs == 0) {
        on_fault(id, id.value() >= blocks_.size() ? Fault::unknown_block : Fault::double_free);
        good = false;
        continue;
      }
      Block& block = blocks_[id.value()];
      block.fence = std::max(block.fence, fence);
      if (--block.refs > 0) continue;
      ++stats_.released_blocks;
      if (block.fence > fence_passed_) {
        block.fenced = true;
        fenced_.push_back(id.value());
      } else if (goes_left(block)) {
        front.push_back(id.value());
      } else {
        push_back(id.value());
      }
    }
    for (auto it = front.rbegin(); it != front.rend(); ++it) push_front(*it);
    return good;
  }

  void advance_fence(std::uint64_t value) {
    const std::lock_guard lock(mutex_);
    fence_passed_ = std::max(fence_passed_, value);
    drain(kFencePortion);
  }

  std::optional<std::pair<BlockId, std::uint16_t>> find(const BlockKey& key) const {
    const std::lock_guard lock(mutex_);
    const auto it = index_.find(key);
    if (it == index_.end()) return std::nullopt;
    const std::uint32_t id = it->second.front();
    return std::pair{BlockId{id}, blocks_[id].generation};
  }

  bool publish(BlockId id, const BlockKey& key, std::int64_t covered) {
    const std::lock_guard lock(mutex_);
    Block& block = blocks_[id.value()];
    if (!options_.enable_caching || id_is_null(id) || block.refs == 0 || carries(block, key)) return false;
    std::vector<std::uint32_t>& holders = index_[key];
    if (!holders.empty()) {
      ++stats_.duplicate_keys;
      if (options_.duplicates == DuplicatePolicy::skip) return false;
    }
    if (block.keys.empty()) block.covered = covered;
    block.keys.push_back(key);
    holders.push_back(id.value());
    ++stats_.published_keys;
    return true;
  }

  bool unpublish(BlockId id) {
    const std::lock_guard lock(mutex_);
    return remove_all(id.value());
  }

  void move_keys(BlockId source, BlockId target) {
    const std::lock_guard lock(mutex_);
    Block& from = blocks_[source.value()];
    Block& to = blocks_[target.value()];
    for (const BlockKey& key : from.keys) {
      forget(key, source.value());
      index_[key].push_back(target.value());
    }
    to.covered = from.covered;
    to.keys = std::exchange(from.keys, {});
    from.covered = 0;
  }

  bool reset() {
    const std::lock_guard lock(mutex_);
    drain_all();
    if (order_.size() + 1 != blocks_.size() || reserved_ != 0) return false;
    index_.clear();
    for (Block& block : blocks_) {
      block.keys.clear();
      block.covered = 0;
    }
    if (options_.enable_events) events_.emplace_back(AllBlocksClearedEvent{});
    return true;
  }

  struct Block {
    std::uint32_t refs = 0;
    std::uint16_t generation = 0;
    bool queued = false;
    bool fenced = false;
    std::uint64_t fence = 0;  ///< the highest that any holder named
    std::list<std::uint32_t>::iterator place;
    std::vector<BlockKey> keys;  ///< primary first
    std::int64_t covered = 0;
  };
  Block block(BlockId id) const {
    const std::lock_guard lock(mutex_);
    return blocks_[id.value()];
  }

  void append_event(KVEvent event) {
    const std::lock_guard lock(mutex_);
    if (options_.enable_events) events_.push_back(std::move(event));
  }
  std::vector<KVEvent> take_events() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

  std::vector<BlockId> free_order() const {
    const std::lock_guard lock(mutex_);
    std::vector<BlockId> ids;
    for (const std::uint32_t id : order_) ids.emplace_back(id);
    return ids;
  }
  std::size_t num_keys() const {
    const std::lock_guard lock(mutex_);
    return index_.size();
  }
  PoolStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  PoolCounts counts() const {
    const std::lock_guard lock(mutex_);
    PoolCounts counts;
    counts.usable = blocks_.size() - 1;
    counts.free = free_count();
    counts.reserved = reserved_;
    for (const Block& block : blocks_) {
      counts.cached += block.keys.empty() ? 0U : 1U;
      counts.referenced += block.refs > 0 ? 1U : 0U;
      counts.fenced += block.fenced ? 1U : 0U;
    }
    return counts;
  }

  static constexpr std::uint32_t kMaxRefs = 65'534;
  static constexpr std::size_t kFencePortion = 64;

 private:
  static bool id_is_null(BlockId id) { return id == kNullBlock; }
  static bool carries(const Block& block, const BlockKey& key) {
    return std::find(block.keys.begin(), block.keys.end(), key) != block.keys.end();
  }
  std::uint32_t free_count() const { return static_cast<std::uint32_t>(order_.size()) - reserved_; }
  bool goes_left(const Block& block) const {
    return options_.free_order == FreeOrder::split && (block.keys.empty() || !options_.enable_caching);
  }
  void push_back(std::uint32_t id) {
    blocks_[id].place = order_.insert(order_.end(), id);
    blocks_[id].queued = true;
  }
  void push_front(std::uint32_t id) {
    blocks_[id].place = order_.insert(order_.begin(), id);
    blocks_[id].queued = true;
  }
  void take_reference(std::uint32_t id) {
    Block& block = blocks_[id];
    if (block.queued) order_.erase(block.place);
    if (block.fenced) fenced_.remove(id);
    block.queued = block.fenced = false;
    ++block.refs;
  }

  /// Moves blocks whose fence has passed from the front of the waiting ones into the order, one by one.
  void drain(std::size_t limit) {
    for (; limit > 0 && !fenced_.empty() && blocks_[fenced_.front()].fence <= fence_passed_; --limit) {
      const std::uint32_t id = fenced_.front();
      fenced_.pop_front();
      unfence(id);
    }
  }
  /// The same for all of them, also those behind a later fence, by number.
  void drain_all() {
    drain(blocks_.size());
    fenced_.remove_if([this](std::uint32_t id) { return blocks_[id].fence <= fence_passed_; });
    for (std::uint32_t id = 1; id < blocks_.size(); ++id) {
      if (blocks_[id].fenced && blocks_[id].fence <= fence_passed_) unfence(id);
    }
  }
  void unfence(std::uint32_t id) {
    blocks_[id].fenced = false;
    goes_left(blocks_[id]) ? push_front(id) : push_back(id);
  }

  bool forget(const BlockKey& key, std::uint32_t id) {
    const auto it = index_.find(key);
    std::erase(it->second, id);
    const bool last = it->second.empty();
    if (last) index_.erase(it);
    return last;
  }

  bool remove_all(std::uint32_t id) {
    Block& block = blocks_[id];
    if (block.keys.empty()) return false;
    for (const BlockKey& key : block.keys) {
      const bool last = forget(key, id);
      if (!options_.enable_events || (options_.removal_events == RemovalEvents::last_copy && !last)) continue;
      BlockRemovedEvent removed;
      removed.block_hashes.push_back(key.hash);
      removed.group_idx = key.group.value();
      events_.emplace_back(std::move(removed));
    }
    block.keys.clear();
    block.covered = 0;
    return true;
  }

  BlockPoolOptions options_;
  mutable std::mutex mutex_;
  std::vector<Block> blocks_;
  std::list<std::uint32_t> order_;
  std::list<std::uint32_t> fenced_;  ///< in the order of their release
  std::uint64_t fence_passed_ = 0;
  std::unordered_map<BlockKey, std::vector<std::uint32_t>> index_;
  std::uint32_t reserved_ = 0;
  std::vector<KVEvent> events_;
  PoolStats stats_;
};

}  // namespace kvpool
