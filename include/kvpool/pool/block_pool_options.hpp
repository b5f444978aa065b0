// How a BlockPool is built.
#pragma once

#include <cstdint>

namespace kvpool {

/// Where released blocks go.
enum class FreeOrder {
  split,   ///< without content: to the front, reused first; with content: to the back (LRU)
  append,  ///< everything to the back, in the order given
};

/// What happens when a second block is published under a key that already has one.
enum class DuplicatePolicy {
  keep,  ///< both answer, first published first
  skip,  ///< the second block stays without a key
};

/// When the removal of a key is announced.
enum class RemovalEvents {
  each_copy,  ///< one event per block that loses the key, even while another copy lives
  last_copy,  ///< only when no block carries the key any more
};

struct BlockPoolOptions {
  std::uint32_t num_blocks = 0;  ///< null block included; 1 to 2^29
  bool enable_caching = true;    ///< false: nothing is published, releases form a stack
  FreeOrder free_order = FreeOrder::split;
  DuplicatePolicy duplicates = DuplicatePolicy::keep;
  std::uint32_t num_shards = 0;  ///< 0: min(CPUs, 8); 1: one exact order over all blocks
  bool enable_events = false;
  RemovalEvents removal_events = RemovalEvents::each_copy;
  bool enable_stats = true;  ///< false: BlockPool::stats() stays 0, and counts() walks over all blocks
  /// Asks for huge pages for arrays of two megabytes and more; the system may refuse. They spare most of the
  /// address translations that look-ups and evictions would miss.
  bool huge_pages = true;
  /// Slots of one order ring, a power of two above 1; three rings per shard, and one for blocks that wait for a fence.
  /// 0: twice num_blocks with up to four shards, num_blocks with more of them (at least 16; 256 for the one that
  /// waits). A full order ring costs cached content (PoolStats::ring_full), never blocks.
  std::uint32_t ring_slots = 0;
  /// Buckets of the index, seven keys each, at most 2^28. 0: half of num_blocks.
  std::uint32_t index_buckets = 0;
};

}  // namespace kvpool
