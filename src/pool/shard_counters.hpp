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
  /// Adds what is not zero. Wait-free; relaxed, since the numbers order nothing.
  void add(const PoolStats& delta) noexcept {
    for (std::size_t i = 0; i < kFields; ++i) {
      if (delta.*kMembers[i] != 0) values_[i].fetch_add(delta.*kMembers[i], std::memory_order_relaxed);
    }
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

  Atom<std::uint64_t> values_[kFields]{};
};

}  // namespace kvpool
