// Sizes that follow from the options of a pool.
#pragma once

#include <cstdint>

#include "kvpool/pool/block_pool_options.hpp"

namespace kvpool {

struct PoolLayout {
  std::uint32_t shards = 1;
  std::uint32_t ring_slots = 0;  ///< of one ring, a power of two
  std::uint32_t index_buckets = 0;

  /// Throws std::invalid_argument when the options allow no pool.
  [[nodiscard]] static PoolLayout of(const BlockPoolOptions& options);
};

/// Tells pools apart in handles; numbers repeat after 65,536 pools.
[[nodiscard]] std::uint16_t next_pool_number() noexcept;

}  // namespace kvpool
