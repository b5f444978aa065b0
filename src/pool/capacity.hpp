// How many blocks may be taken: promised first, collected later.
#pragma once

#include <atomic>
#include <cstdint>

#include "foundation/cache_line.hpp"

namespace kvpool {

/// One counter of blocks that are reachable and promised to nobody. A unit is credited only after the block
/// can be reached, so whoever holds a promise finds a block unless another thread makes progress.
template <template <class> class Atom>
class Capacity {
 public:
  explicit Capacity(std::uint64_t free) : free_(free) {}

  [[nodiscard]] std::uint64_t free() const noexcept { return free_.load(std::memory_order_acquire); }  // [C2]

  /// Takes `count` units if at least count + keep_free are there. Lock-free.
  [[nodiscard]] bool reserve(std::uint64_t count, std::uint64_t keep_free = 0) noexcept {
    std::uint64_t free = free_.load(std::memory_order_acquire);  // [C2]
    do {
      if (free < count + keep_free) return false;
      if (count == 0) return true;
    } while (!free_.compare_exchange_weak(free, free - count, std::memory_order_acq_rel,
                                          std::memory_order_acquire));  // [C2]
    return true;
  }

  /// Gives units back, whose blocks are reachable. Wait-free.
  void credit(std::uint64_t count) noexcept {
    if (count > 0) free_.fetch_add(count, std::memory_order_acq_rel);  // [C1] after the put or push
  }

 private:
  alignas(kCacheLineBytes) Atom<std::uint64_t> free_;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace kvpool
