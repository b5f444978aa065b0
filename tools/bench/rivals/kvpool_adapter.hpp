// kvpool's pools through their interface, in the four calls that the workloads use.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "kvpool/pool/block_pool.hpp"

namespace kvpool::tools {

/// What a row may switch off.
struct PoolFeatures {
  bool stats = true;
  bool huge_pages = true;
};

template <class Pool>
class PoolAdapter {
 public:
  explicit PoolAdapter(std::uint32_t num_blocks, bool events = false, std::uint32_t num_shards = 0,
                       PoolFeatures features = {})
      : pool_(options(num_blocks, events, num_shards, features)) {}

  std::size_t match_and_pin(std::span<const BlockHash> chain, std::span<BlockId> out) {
    std::array<BlockHandle, kMaxBatch> handles;
    const std::size_t room = std::min({chain.size(), out.size(), kMaxBatch});
    const std::size_t found = pool_.find_prefix({chain, 1}, GroupId{0}, std::span(handles).first(room));
    if (found == 0) {
      return 0;
    }
    // Only hits that nobody references need room. One that loses its last holder until it is pinned ends the prefix.
    std::uint32_t unreferenced = 0;
    for (const BlockHandle& handle : std::span(handles).first(found)) {
      unreferenced += pool_.ref_count(handle.id) == 0 ? 1U : 0U;
    }
    auto reservation = pool_.try_reserve(unreferenced);
    if (!reservation) {
      return 0;
    }
    const std::size_t pinned = pool_.pin_prefix(std::span(handles).first(found), {chain, 1}, GroupId{0}, *reservation);
    for (std::size_t i = 0; i < pinned; ++i) {
      out[i] = handles[i].id;
    }
    return pinned;
  }

  bool allocate(std::span<BlockId> out) { return pool_.get_new_blocks(out); }

  void publish(std::span<const BlockId> ids, std::span<const BlockHash> hashes) {
    pool_.publish_chain(ids, {hashes, 1}, GroupId{0}, 0, 1);
  }

  void release(std::span<const BlockId> ids) { pool_.free_blocks(ids); }

  [[nodiscard]] std::uint32_t num_free() const { return pool_.num_free_blocks(); }
  [[nodiscard]] Pool& pool() noexcept { return pool_; }

 private:
  static constexpr std::size_t kMaxBatch = 64;

  static BlockPoolOptions options(std::uint32_t num_blocks, bool events, std::uint32_t num_shards,
                                  PoolFeatures features) {
    BlockPoolOptions options;
    options.num_blocks = num_blocks;
    options.enable_events = events;
    options.num_shards = num_shards;
    options.enable_stats = features.stats;
    options.huge_pages = features.huge_pages;
    return options;
  }

  Pool pool_;
};

using KvpoolAdapter = PoolAdapter<BlockPool>;

}  // namespace kvpool::tools
