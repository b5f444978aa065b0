// One lock around an intrusive list and kvpool's own index: what a careful engineer writes without lock-freedom.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "block/key_words.hpp"
#include "kvpool/block/block_hash.hpp"
#include "prefix/prefix_index.hpp"
#include "tools/bench/rivals/block_list.hpp"

namespace kvpool::tools {

/// One lock per call, whatever the number of blocks; keys are mixed before the lock is taken.
template <class Lock>
class LeanPool {
 public:
  explicit LeanPool(std::uint32_t num_blocks)
      : blocks_(num_blocks), free_(num_blocks), index_(std::max(num_blocks / 2, 1U)) {
    for (std::uint32_t block = 1; block < num_blocks; ++block) {
      free_.push_back(block);
    }
  }

  /// Pins the longest known prefix of `chain` into `out`; answers its length.
  std::size_t match_and_pin(std::span<const BlockHash> chain, std::span<BlockId> out) {
    std::array<Probe, kMaxBatch> probes;
    const std::size_t count = std::min({chain.size(), out.size(), kMaxBatch});
    prepare(chain.first(count), probes);
    const std::lock_guard guard(lock_);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t block = find(probes[i]);
      if (block == 0) {
        return i;
      }
      if (blocks_[block].references++ == 0) {
        free_.erase(block);
      }
      out[i] = BlockId{block};
    }
    return count;
  }

  bool allocate(std::span<BlockId> out) {
    const std::lock_guard guard(lock_);
    if (free_.size() < out.size()) {
      return false;
    }
    for (BlockId& id : out) {
      const std::uint32_t number = free_.pop_front();
      Block& block = blocks_[number];
      if (block.hashed) {
        index_.erase(block.hash, block.position);
        block.hashed = false;
      }
      block.references = 1;
      id = BlockId{number};
    }
    return true;
  }

  /// Precondition: as many hashes as blocks.
  void publish(std::span<const BlockId> ids, std::span<const BlockHash> hashes) {
    std::array<Probe, kMaxBatch> probes;
    for (std::size_t first = 0; first < ids.size(); first += kMaxBatch) {
      const std::size_t count = std::min(ids.size() - first, kMaxBatch);
      prepare(hashes.subspan(first, count), probes);
      const std::lock_guard guard(lock_);
      for (std::size_t i = 0; i < count; ++i) {
        Block& block = blocks_[ids[first + i].value()];
        block.position = index_.insert(probes[i].hash, ids[first + i].value());
        block.hashed = block.position != PrefixIndex<std::atomic>::kNoPosition;
        block.hash = probes[i].hash;
        block.key = probes[i].key;
      }
    }
  }

  void release(std::span<const BlockId> ids) {
    const std::lock_guard guard(lock_);
    std::uint32_t place = BlockList::kEnd;  // blocks without content go to the front in their order
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
    const std::lock_guard guard(lock_);
    return free_.size();
  }

 private:
  static constexpr std::size_t kMaxBatch = 64;

  struct Block {
    KeyWords key;
    std::uint64_t hash = 0;
    std::uint32_t position = 0;
    std::uint32_t references = 0;
    bool hashed = false;
  };
  struct Probe {
    KeyWords key;
    std::uint64_t hash = 0;
  };

  void prepare(std::span<const BlockHash> hashes, std::span<Probe> probes) const noexcept {
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      probes[i].key = KeyWords(BlockKey{hashes[i], GroupId{0}});
      probes[i].hash = probes[i].key.mixed();
      index_.prefetch(probes[i].hash);
    }
  }

  /// 0: none.
  [[nodiscard]] std::uint32_t find(const Probe& probe) const {
    std::uint32_t found = 0;
    index_.for_each_match(probe.hash, [&](std::uint32_t block) {
      if (blocks_[block].key != probe.key) {
        return false;
      }
      found = block;
      return true;
    });
    return found;
  }

  mutable Lock lock_;
  std::vector<Block> blocks_;
  BlockList free_;
  PrefixIndex<std::atomic> index_;
};

}  // namespace kvpool::tools
