// What happened on one shard. One addition per call and counter, on a line of the shard.
#pragma once

#include <atomic>
#include <cstdint>

#include "foundation/cache_line.hpp"
#include "kvpool/pool/pool_stats.hpp"

namespace kvpool {

template <template <class> class Atom>
class alignas(kCacheLineBytes) ShardCounters {
 public:
  /// Adds to one counter unless `count` is 0. Wait-free; relaxed, since the numbers order nothing.
  template <std::uint64_t PoolStats::*Counter>
  void add(std::uint64_t count) noexcept {
    if (count != 0) values_[index_of(Counter)].fetch_add(count, std::memory_order_relaxed);
  }
  void add_to(PoolStats& sum) const noexcept {
    for (std::size_t i = 0; i < kFields; ++i) sum.*kMembers[i] += values_[i].load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t PoolStats::*kMembers[] = {
      &PoolStats::allocated_blocks, &PoolStats::evicted_blocks, &PoolStats::released_blocks,
      &PoolStats::published_keys,   &PoolStats::duplicate_keys, &PoolStats::refused_allocations,
      &PoolStats::lost_pins,        &PoolStats::ring_full,      &PoolStats::dead_slots,
      &PoolStats::stolen_blocks,    &PoolStats::index_full,     &PoolStats::rescans};
  static constexpr std::size_t kFields = sizeof kMembers / sizeof kMembers[0];
  static_assert(sizeof(PoolStats) == kFields * sizeof(std::uint64_t), "every counter is kept");

  static constexpr std::size_t index_of(std::uint64_t PoolStats::*counter) noexcept {
    std::size_t i = 0;
    while (kMembers[i] != counter) ++i;
    return i;
  }

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  Atom<std::uint64_t> values_[kFields]{};
};

}  // namespace kvpool
