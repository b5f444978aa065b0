#include "pool/pool_layout.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <stdexcept>
#include <string>
#include <thread>

#include "prefix/prefix_index.hpp"

namespace kvpool {
namespace {

constexpr std::uint32_t kMaxShards = 256;
constexpr std::uint32_t kDefaultShards = 8;
constexpr std::uint32_t kMaxBlocks = 1U << 29U;  // the index numbers secondary keys behind the blocks
constexpr std::uint32_t kMaxIndexBuckets = PrefixIndex<std::atomic>::kMaxBuckets;
constexpr std::uint32_t kMinRingSlots = 2;
constexpr std::uint32_t kMinIndexBuckets = 4;

std::uint32_t default_ring_slots(std::uint64_t blocks, std::uint32_t shards) {
  // A ring holds live entries, of which there are at most as many as blocks, and stale ones that wait for
  // compaction. Twice the blocks leave room for any mixture; with many shards the blocks are spread.
  const std::uint64_t slots = shards <= 4 ? 2 * blocks : blocks;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(std::bit_ceil(std::max<std::uint64_t>(slots, 16)), 1U << 31U));
}

}  // namespace

PoolLayout PoolLayout::of(const BlockPoolOptions& options) {
  if (options.num_blocks == 0) throw std::invalid_argument("num_blocks is 0: a pool needs at least the null block");
  if (options.num_blocks > kMaxBlocks) {
    throw std::invalid_argument("num_blocks is " + std::to_string(options.num_blocks) + ", more than 2^29");
  }
  if (options.num_shards > kMaxShards) {
    throw std::invalid_argument("num_shards is " + std::to_string(options.num_shards) + ", more than 256");
  }
  if (options.ring_slots != 0 && (!std::has_single_bit(options.ring_slots) || options.ring_slots < kMinRingSlots)) {
    throw std::invalid_argument("ring_slots is " + std::to_string(options.ring_slots) + ", not a power of two above 1");
  }
  if (options.index_buckets > kMaxIndexBuckets) {
    throw std::invalid_argument("index_buckets is " + std::to_string(options.index_buckets) + ", more than 2^28");
  }
  PoolLayout layout;
  layout.shards = options.num_shards != 0
                      ? options.num_shards
                      : std::clamp(static_cast<std::uint32_t>(std::thread::hardware_concurrency()), 1U, kDefaultShards);
  layout.ring_slots =
      options.ring_slots != 0 ? options.ring_slots : default_ring_slots(options.num_blocks, layout.shards);
  layout.index_buckets =
      options.index_buckets != 0 ? options.index_buckets : std::max(options.num_blocks / 2, kMinIndexBuckets);
  return layout;
}

std::uint16_t next_pool_number() noexcept {
  static std::atomic<std::uint16_t> counter{0};
  static_assert(std::atomic<std::uint16_t>::is_always_lock_free);
  return counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace kvpool
