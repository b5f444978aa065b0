// What happened on one shard. One addition per call and counter, on lines of the shard that no other call needs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "foundation/cache_line.hpp"
#include "kvpool/pool/pool_stats.hpp"

namespace kvpool {

/// Where blocks and contents went besides what PoolStats says; the differences say how many there are (PoolCounts).
/// What happens often is counted once.
struct PoolFlows {
  std::uint64_t further_keys = 0;     ///< published keys of blocks that had one already
  std::uint64_t moved_contents = 0;   ///< blocks that took a primary key over from another
  std::uint64_t ended_contents = 0;   ///< blocks that lost it otherwise than by eviction
  std::uint64_t revived_blocks = 0;   ///< unreferenced blocks that a pin or touch took
  std::uint64_t fenced_blocks = 0;    ///< released into the fence queue
  std::uint64_t unfenced_blocks = 0;  ///< left it, handed over or pinned
  std::uint64_t shared_pins = 0;      ///< references added to blocks that had some
  std::uint64_t shared_releases = 0;  ///< references given back by blocks that kept some
};

template <template <class> class Atom>
class alignas(kCacheLineBytes) ShardCounters {
 public:
  /// Off: every update is left out, and the numbers stay 0.
  explicit ShardCounters(bool on = true) noexcept : on_(on) {}

  /// Adds to one counter unless `count` is 0. Wait-free; relaxed, since the numbers order nothing.
  template <auto Counter>
  void add(std::uint64_t count) noexcept {
    if (count != 0 && on_) values_[index_of(Counter)].fetch_add(count, std::memory_order_relaxed);
  }
  /// The same for what sharing_changes() counts: whoever sees the number sees the references behind it.
  template <auto Counter>
  void add_visibly(std::uint64_t count) noexcept {
    if (count != 0 && on_) values_[index_of(Counter)].fetch_add(count, std::memory_order_release);  // [L2]
  }
  /// Wait-free.
  [[nodiscard]] std::uint64_t sharing_changes() const noexcept {
    return values_[index_of(&PoolFlows::shared_pins)].load(std::memory_order_acquire) +     // [L2]
           values_[index_of(&PoolFlows::shared_releases)].load(std::memory_order_acquire);  // [L2]
  }
  /// Raises the longest probe. Lock-free, and seldom more than a load.
  void note_probe(std::uint64_t distance) noexcept {
    if (distance == 0 || !on_) return;
    Atom<std::uint64_t>& longest = values_[index_of(&PoolStats::longest_probe)];
    std::uint64_t seen = longest.load(std::memory_order_relaxed);  // [H]
    while (seen < distance &&
           !longest.compare_exchange_weak(seen, distance, std::memory_order_relaxed, std::memory_order_relaxed)) {
    }
  }
  void add_to(PoolStats& sum) const noexcept {
    const std::uint64_t probe = std::max(sum.longest_probe, value(index_of(&PoolStats::longest_probe)));
    for (std::size_t i = 0; i < kStats; ++i) sum.*kStatMembers[i] += value(i);
    sum.longest_probe = probe;
    // Counted by their parts, so that a call adds to one counter and not to two.
    sum.pinned_blocks += value(index_of(&PoolFlows::revived_blocks)) + value(index_of(&PoolFlows::shared_pins));
    sum.released_references +=
        value(index_of(&PoolStats::released_blocks)) + value(index_of(&PoolFlows::shared_releases));
  }
  void add_to(PoolFlows& sum) const noexcept {
    for (std::size_t i = 0; i < kFlows; ++i) sum.*kFlowMembers[i] += value(kStats + i);
  }

 private:
  static constexpr std::uint64_t PoolStats::*kStatMembers[] = {
      &PoolStats::allocated_blocks, &PoolStats::evicted_blocks,
      &PoolStats::released_blocks,  &PoolStats::released_references,
      &PoolStats::pinned_blocks,    &PoolStats::published_keys,
      &PoolStats::duplicate_keys,   &PoolStats::refused_allocations,
      &PoolStats::lost_pins,        &PoolStats::ring_full,
      &PoolStats::dead_slots,       &PoolStats::stolen_blocks,
      &PoolStats::index_full,       &PoolStats::rescans,
      &PoolStats::retries,          &PoolStats::dropped_entries,
      &PoolStats::moved_entries,    &PoolStats::longest_probe};
  static constexpr std::uint64_t PoolFlows::*kFlowMembers[] = {
      &PoolFlows::further_keys,  &PoolFlows::moved_contents,  &PoolFlows::ended_contents, &PoolFlows::revived_blocks,
      &PoolFlows::fenced_blocks, &PoolFlows::unfenced_blocks, &PoolFlows::shared_pins,    &PoolFlows::shared_releases};
  static constexpr std::size_t kStats = sizeof kStatMembers / sizeof kStatMembers[0];
  static constexpr std::size_t kFlows = sizeof kFlowMembers / sizeof kFlowMembers[0];
  static_assert(sizeof(PoolStats) == kStats * sizeof(std::uint64_t), "every counter is kept");
  static_assert(sizeof(PoolFlows) == kFlows * sizeof(std::uint64_t), "every flow is kept");

  static constexpr std::size_t index_of(std::uint64_t PoolStats::*counter) noexcept {
    std::size_t i = 0;
    while (kStatMembers[i] != counter) ++i;
    return i;
  }
  static constexpr std::size_t index_of(std::uint64_t PoolFlows::*flow) noexcept {
    std::size_t i = 0;
    while (kFlowMembers[i] != flow) ++i;
    return kStats + i;
  }
  [[nodiscard]] std::uint64_t value(std::size_t index) const noexcept {
    return values_[index].load(std::memory_order_relaxed);  // [H]
  }

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  Atom<std::uint64_t> values_[kStats + kFlows]{};
  bool on_;
};

}  // namespace kvpool
