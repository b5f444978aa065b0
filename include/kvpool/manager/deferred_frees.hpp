// Blocks that a step in flight may still write: they are given back when that step is processed.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "kvpool/manager/kv_cache_manager.hpp"

namespace kvpool {

/// A queue of blocks, each waiting for a step. Deferred blocks stay referenced, so they are not free, not
/// recycled and not evicted; their content can still be hit. Not thread-safe: one scheduler thread. It must
/// not outlive the pool; whatever still waits is given back on destruction.
class DeferredFrees {
 public:
  explicit DeferredFrees(BlockPool& pool) noexcept : pool_(&pool) {}
  DeferredFrees(const DeferredFrees&) = delete;
  DeferredFrees& operator=(const DeferredFrees&) = delete;
  ~DeferredFrees();

  /// A step leaves for the device. Answers its number, counted from 1.
  std::int64_t step_scheduled() noexcept { return ++scheduled_; }

  /// The oldest step in flight came back: gives back what waited for it. Precondition: one is in flight.
  void step_processed();

  /// Blocks of a request that ended (KVCacheManager::pop_blocks_for_free, in that order). They are given
  /// back tail first: at once when the request's last step is processed, else after all steps scheduled so far.
  void free(std::vector<BlockId> blocks, std::int64_t last_step_of_request);

  /// Both ends of copies that the next step makes; given back source first once it is processed.
  void free_after_copy(std::span<const BlockCopy> copies);

  [[nodiscard]] std::int64_t scheduled_steps() const noexcept { return scheduled_; }
  [[nodiscard]] std::int64_t processed_steps() const noexcept { return processed_; }

  /// References that wait. O(1).
  [[nodiscard]] std::size_t num_waiting() const noexcept { return num_waiting_; }

 private:
  struct Entry {
    std::int64_t fence = 0;  ///< step number
    std::vector<BlockId> eviction_order;
  };

  void enqueue(std::int64_t fence, std::vector<BlockId> eviction_order);
  void release_front();

  BlockPool* pool_;
  std::int64_t scheduled_ = 0;
  std::int64_t processed_ = 0;
  std::size_t num_waiting_ = 0;
  std::deque<Entry> waiting_;
};

}  // namespace kvpool
