// One mutex, an intrusive list and std::unordered_map: the pool as the standard library suggests it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "kvpool/block/block_hash.hpp"
#include "tools/bench/rivals/block_list.hpp"

namespace kvpool::tools {

/// A key that another block has already stays with that block.
class StdPool {
 public:
  explicit StdPool(std::uint32_t num_blocks) : blocks_(num_blocks), free_(num_blocks) {
    map_.reserve(num_blocks);  // never rehashes
    for (std::uint32_t block = 1; block < num_blocks; ++block) {
      free_.push_back(block);
    }
  }

  std::size_t match_and_pin(std::span<const BlockHash> chain, std::span<BlockId> out) {
    const std::lock_guard guard(mutex_);
    const std::size_t count = std::min(chain.size(), out.size());
    for (std::size_t i = 0; i < count; ++i) {
      const auto found = map_.find(BlockKey{chain[i], GroupId{0}});
      if (found == map_.end()) {
        return i;
      }
      if (blocks_[found->second].references++ == 0) {
        free_.erase(found->second);
      }
      out[i] = BlockId{found->second};
    }
    return count;
  }

  bool allocate(std::span<BlockId> out) {
    const std::lock_guard guard(mutex_);
    if (free_.size() < out.size()) {
      return false;
    }
    for (BlockId& id : out) {
      const std::uint32_t number = free_.pop_front();
      Block& block = blocks_[number];
      if (block.hashed) {
        map_.erase(block.key);
        block.hashed = false;
      }
      block.references = 1;
      id = BlockId{number};
    }
    return true;
  }

  void publish(std::span<const BlockId> ids, std::span<const BlockHash> hashes) {
    const std::lock_guard guard(mutex_);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      Block& block = blocks_[ids[i].value()];
      block.key = BlockKey{hashes[i], GroupId{0}};
      block.hashed = map_.try_emplace(block.key, ids[i].value()).second;
    }
  }

  void release(std::span<const BlockId> ids) {
    const std::lock_guard guard(mutex_);
    std::uint32_t place = BlockList::kEnd;
    for (const BlockId id : ids) {
      Block& block = blocks_[id.value()];
      if (--block.references != 0) {
        continue;
      }
      if (block.hashed) {
        free_.push_back(id.value());
      } else {
        free_.insert_after(place, id.value());
        place = id.value();
      }
    }
  }

  [[nodiscard]] std::uint32_t num_free() const {
    const std::lock_guard guard(mutex_);
    return free_.size();
  }

 private:
  struct Block {
    BlockKey key;
    std::uint32_t references = 0;
    bool hashed = false;
  };

  mutable std::mutex mutex_;
  std::vector<Block> blocks_;
  BlockList free_;
  std::unordered_map<BlockKey, std::uint32_t> map_;
};

}  // namespace kvpool::tools
