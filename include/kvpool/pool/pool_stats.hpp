// Counters of a pool: what an operator watches and what tests assert.
#pragma once

#include <cstdint>

namespace kvpool {

/// Where the usable blocks (num_blocks - 1) are, from counters that calls update when they end. Exact when no call
/// is in progress; with other threads at work each number may be off by what those calls hold, and never out of
/// [0, usable].
struct PoolCounts {
  std::uint64_t usable = 0;      ///< num_blocks - 1
  std::uint64_t free = 0;        ///< can be allocated now, blocks with content included
  std::uint64_t cached = 0;      ///< blocks that carry a primary key, free or referenced
  std::uint64_t referenced = 0;  ///< reference count > 0
  std::uint64_t fenced = 0;      ///< unreferenced, waiting for a fence
  std::uint64_t reserved = 0;    ///< promised to allocations in progress
};

/// Monotonic counters since construction, of one shard (the one whose processor the calling thread ran on) or of
/// all together. Paths marked "rare" stay 0 in ordinary runs.
struct PoolStats {
  std::uint64_t allocated_blocks = 0;
  std::uint64_t evicted_blocks = 0;       ///< allocated blocks that carried content
  std::uint64_t released_blocks = 0;      ///< reference counts that reached 0
  std::uint64_t released_references = 0;  ///< given back, the last ones included
  std::uint64_t pinned_blocks = 0;        ///< references added by pin and touch
  std::uint64_t published_keys = 0;
  std::uint64_t duplicate_keys = 0;       ///< published although another block had the key
  std::uint64_t refused_allocations = 0;  ///< no capacity
  std::uint64_t lost_pins = 0;            ///< rare: recycled between look-up and pin
  std::uint64_t ring_full = 0;            ///< rare: content dropped because an order had no slot left
  std::uint64_t dead_slots = 0;           ///< rare: slots killed by a consumer that passed a producer
  std::uint64_t stolen_blocks = 0;        ///< taken from another shard
  std::uint64_t index_full = 0;           ///< rare: keys refused because the index had no slot left
  std::uint64_t rescans = 0;              ///< rare: an allocation looked everywhere and had to look again
  std::uint64_t retries = 0;              ///< exchanges on state words that another thread had changed
  std::uint64_t dropped_entries = 0;      ///< reorder work: stale entries of the order that releases cleared away
  std::uint64_t moved_entries = 0;        ///< reorder work: live ones that releases moved to an older ring
  std::uint64_t longest_probe = 0;        ///< most buckets that ever lay between a key's home and its place

  /// Operations on single blocks: pins, allocations, publications, releases.
  [[nodiscard]] std::uint64_t operations() const noexcept {
    return pinned_blocks + allocated_blocks + published_keys + released_references;
  }
};

}  // namespace kvpool
