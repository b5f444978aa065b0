// How a request gets its block table from a pool: look up, pin, allocate, publish.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvpool/pool/block_pool.hpp"
#include "tools/replay/request_keys.hpp"

namespace kvpool::tools {

enum class Taken {
  all,      ///< the table is complete
  no_room,  ///< fewer blocks are free than the request needs
  lost,     ///< another thread recycled a hit or changed its need: look up again
};

/// Scratch space of one thread; the pool may be shared with others.
class Admitter {
 public:
  Admitter(BlockPool& pool, std::int64_t block_size) : pool_(pool), block_size_(block_size) {}

  /// Finds the longest cached prefix; answers its length in blocks. Nothing is pinned.
  std::size_t look_up(const RequestKeys& request);

  /// Pins the blocks found and allocates the rest into `table`. Only `all` changes anything.
  [[nodiscard]] Taken take(const RequestKeys& request, std::vector<BlockId>& table);

  /// Publishes the full blocks behind the hits. Answers how many keys were kept.
  std::uint64_t publish(const RequestKeys& request, std::span<const BlockId> table);

  /// Gives the table back, last block first, and empties it.
  void release(std::vector<BlockId>& table);

  [[nodiscard]] std::size_t hits() const noexcept { return hits_; }

  /// From now on remembers which blocks carry a key, to count evictions request by request. Only for a pool that
  /// nobody else uses.
  void count_evictions() { carries_key_.assign(pool_.num_blocks(), 0); }
  /// Blocks that carried a key when take() got them; 0 unless they are counted.
  [[nodiscard]] std::uint64_t evictions() const noexcept { return evictions_; }

 private:
  /// Hits without references: pinning them takes them out of the free order.
  [[nodiscard]] std::size_t unreferenced_hits() const noexcept;

  BlockPool& pool_;
  std::int64_t block_size_;
  std::vector<BlockHandle> found_;
  std::size_t hits_ = 0;
  std::vector<BlockId> reversed_;
  std::vector<std::uint8_t> carries_key_;  ///< per block; empty: not counted
  std::uint64_t evictions_ = 0;
};

}  // namespace kvpool::tools
