// What the workers believe about every block, kept beside the pool and independent of it. A block that two threads
// own, or content that changes under a reader, shows here at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "kvpool/block/block_id.hpp"

namespace kvpool::stress {

/// First violation wins; later ones are counted.
class Verdict {
 public:
  void fail(const std::string& what) {
    if (failures_.fetch_add(1, std::memory_order_relaxed) == 0) {
      first_ = what;
      ready_.store(true, std::memory_order_release);
    }
  }
  [[nodiscard]] std::uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::string first() const { return ready_.load(std::memory_order_acquire) ? first_ : std::string(); }

 private:
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<bool> ready_{false};
  std::string first_;
};

class Ledger {
 public:
  Ledger(std::uint32_t num_blocks, Verdict& verdict) : entries_(num_blocks), verdict_(&verdict) {}

  /// The caller got `block` from an allocation: nobody else may hold it. Starts a new life of its content.
  void own(BlockId block, std::uint64_t content) {
    Entry& entry = entries_[block.value()];
    if (entry.holders.fetch_add(1, std::memory_order_acq_rel) != 0) {
      verdict_->fail("block " + std::to_string(block.value()) + " was allocated while somebody held it");
    }
    entry.life.fetch_add(1, std::memory_order_relaxed);
    entry.content.store(content, std::memory_order_release);
  }

  /// The owner writes what the key stands for, before it publishes the block.
  void write(BlockId block, std::uint64_t content) {
    entries_[block.value()].content.store(content, std::memory_order_release);
  }

  /// The caller has pinned `block` for `content`.
  void share(BlockId block, std::uint64_t content) {
    entries_[block.value()].holders.fetch_add(1, std::memory_order_acq_rel);
    expect(block, content);
  }

  /// While a reference is held the content stays.
  void expect(BlockId block, std::uint64_t content) {
    const std::uint64_t found = entries_[block.value()].content.load(std::memory_order_acquire);
    if (found != content) {
      verdict_->fail("block " + std::to_string(block.value()) + " holds content " + std::to_string(found) +
                     " instead of " + std::to_string(content));
    }
  }

  /// To be called before the reference is given back to the pool.
  void leave(BlockId block) {
    if (entries_[block.value()].holders.fetch_sub(1, std::memory_order_acq_rel) == 0) {
      verdict_->fail("block " + std::to_string(block.value()) + " was left by more holders than it had");
    }
  }

  /// Number of the block's current life; changes when it is allocated.
  [[nodiscard]] std::uint32_t life(BlockId block) const {
    return entries_[block.value()].life.load(std::memory_order_acquire);
  }

 private:
  struct Entry {
    std::atomic<std::uint32_t> holders{0};
    std::atomic<std::uint32_t> life{0};
    std::atomic<std::uint64_t> content{0};
  };
  std::vector<Entry> entries_;
  Verdict* verdict_;
};

}  // namespace kvpool::stress
