// Shards of intrusive lists under locks over a concurrent hash map: the usual shape of a concurrent block pool.
#pragma once

#include <tbb/concurrent_hash_map.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "foundation/cache_line.hpp"
#include "kvpool/block/block_hash.hpp"

namespace kvpool::tools {

/// A block belongs to the shard of its number, whose lock guards its count, its key and its place in the list.
/// The map is only a hint: a key found there is compared with the block's own under the shard's lock.
class CardPool {
 public:
  explicit CardPool(std::uint32_t num_blocks) : blocks_(num_blocks), map_(num_blocks) {
    for (std::uint32_t number = 1; number < num_blocks; ++number) {
      shard_of(number).free.push_back(blocks_[number]);
      ++shard_of(number).count;
    }
    num_free_.store(num_blocks - 1, std::memory_order_relaxed);
  }
  ~CardPool() {
    for (Shard& shard : shards_) {
      shard.free.clear();
    }
  }
  CardPool(const CardPool&) = delete;
  CardPool& operator=(const CardPool&) = delete;

  std::size_t match_and_pin(std::span<const BlockHash> chain, std::span<BlockId> out) {
    const std::size_t count = std::min(chain.size(), out.size());
    for (std::size_t i = 0; i < count; ++i) {
      const BlockKey key{chain[i], GroupId{0}};
      std::uint32_t number = 0;
      {
        Map::const_accessor entry;
        if (!map_.find(entry, key)) {
          return i;
        }
        number = entry->second;
      }
      Shard& shard = shard_of(number);
      Block& block = blocks_[number];
      const std::lock_guard guard(shard.mutex);
      if (!block.hashed || block.key != key) {
        return i;  // recycled since
      }
      if (block.references == 0) {
        if (!reserve(1)) {
          return i;
        }
        shard.free.erase(shard.free.iterator_to(block));
        --shard.count;
      }
      ++block.references;
      out[i] = BlockId{number};
    }
    return count;
  }

  bool allocate(std::span<BlockId> out) {
    if (!reserve(out.size())) {
      return false;
    }
    std::vector<BlockKey> lost;
    std::vector<std::uint32_t> losers;
    std::size_t taken = 0;
    // What is reserved lies in some shard, or is on its way there.
    for (std::size_t at = next_shard(); taken < out.size(); at = (at + 1) % kShards) {
      Shard& shard = shards_[at];
      const std::lock_guard guard(shard.mutex);
      while (taken < out.size() && shard.count > 0) {
        Block& block = shard.free.front();
        shard.free.pop_front();
        --shard.count;
        const auto number = static_cast<std::uint32_t>(&block - blocks_.data());
        if (block.hashed) {
          lost.push_back(block.key);
          losers.push_back(number);
          block.hashed = false;
        }
        block.references = 1;
        out[taken++] = BlockId{number};
      }
    }
    for (std::size_t i = 0; i < lost.size(); ++i) {
      Map::accessor entry;
      if (map_.find(entry, lost[i]) && entry->second == losers[i]) {
        map_.erase(entry);
      }
    }
    return true;
  }

  void publish(std::span<const BlockId> ids, std::span<const BlockHash> hashes) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::uint32_t number = ids[i].value();
      const BlockKey key{hashes[i], GroupId{0}};
      Map::accessor entry;
      if (!map_.insert(entry, Map::value_type(key, number))) {
        continue;  // another block has it
      }
      const std::lock_guard guard(shard_of(number).mutex);
      blocks_[number].key = key;
      blocks_[number].hashed = true;
    }
  }

  void release(std::span<const BlockId> ids) {
    for (const BlockId id : ids) {
      Shard& shard = shard_of(id.value());
      Block& block = blocks_[id.value()];
      const std::lock_guard guard(shard.mutex);
      if (--block.references != 0) {
        continue;
      }
      if (block.hashed) {
        shard.free.push_back(block);
      } else {
        shard.free.push_front(block);
      }
      ++shard.count;
      num_free_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  [[nodiscard]] std::uint32_t num_free() const {
    return static_cast<std::uint32_t>(num_free_.load(std::memory_order_relaxed));
  }

 private:
  static constexpr std::size_t kShards = 8;

  struct Block : boost::intrusive::list_base_hook<> {
    BlockKey key;
    std::uint32_t references = 0;
    bool hashed = false;
  };
  struct alignas(kCacheLineBytes) Shard {
    std::mutex mutex;
    boost::intrusive::list<Block, boost::intrusive::constant_time_size<false>> free;
    std::size_t count = 0;
  };
  struct HashCompare {
    static std::size_t hash(const BlockKey& key) { return std::hash<BlockKey>{}(key); }
    static bool equal(const BlockKey& a, const BlockKey& b) { return a == b; }
  };
  using Map = tbb::concurrent_hash_map<BlockKey, std::uint32_t, HashCompare>;

  [[nodiscard]] Shard& shard_of(std::uint32_t number) noexcept { return shards_[number % kShards]; }

  [[nodiscard]] static std::size_t next_shard() noexcept {
    static std::atomic<std::size_t> threads{0};
    thread_local std::size_t shard = threads.fetch_add(1, std::memory_order_relaxed);
    return shard++ % kShards;  // take from all of them in turn, so that old content leaves everywhere
  }

  [[nodiscard]] bool reserve(std::size_t count) noexcept {
    std::int64_t free = num_free_.load(std::memory_order_relaxed);
    const auto wanted = static_cast<std::int64_t>(count);
    while (free >= wanted) {
      if (num_free_.compare_exchange_weak(free, free - wanted, std::memory_order_relaxed, std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  std::vector<Block> blocks_;
  std::array<Shard, kShards> shards_;
  std::atomic<std::int64_t> num_free_{0};
  Map map_;
};

}  // namespace kvpool::tools
