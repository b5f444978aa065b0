// What every manager of one group knows, and the lists through which it speaks to the scheduler.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvpool/block/block_id.hpp"
#include "kvpool/manager/kv_cache_manager.hpp"
#include "kvpool/pool/block_pool.hpp"
#include "manager/push_list.hpp"

namespace kvpool {

class ResidencyMetrics;

/// Sizes in tokens; fixed when the coordinator is built.
struct GroupContext {
  BlockPool* pool = nullptr;
  ResidencyMetrics* metrics = nullptr;  ///< null: none
  GroupId id{};
  std::int64_t block_size = 0;  ///< of all context-parallel ranks together
  std::int64_t hash_block_size = 0;
  std::int64_t scheduler_block_size = 0;
  std::optional<std::int64_t> retention_interval;
  std::optional<std::int64_t> admission_cap;  ///< blocks that one request can hold at most, in the full-sequence gate
  bool enable_caching = true;
  bool zero_new_blocks = false;  ///< new blocks are collected for zeroing
  bool zero_copy_targets = false;

  [[nodiscard]] std::int64_t units_per_block() const noexcept { return block_size / hash_block_size; }
};

/// One look-up. `groups` have equal specs and are searched jointly: a block counts when all have it.
struct LookupQuery {
  std::span<const BlockHash> hashes;  ///< one per hash unit
  std::int64_t max_length = 0;        ///< tokens
  std::span<const GroupId> groups;
  bool drop_last = false;      ///< leave out the last matched unit (draft models)
  std::int64_t alignment = 0;  ///< the hit is a multiple of this many tokens
};

struct GroupHits {
  std::vector<std::vector<BlockHandle>> lists;  ///< one per group of the query
  std::int64_t length = 0;                      ///< tokens
};

/// What one allocation asks of a group; all in tokens.
struct SlotDemand {
  std::int64_t tokens = 0;          ///< slots, look-ahead included
  std::int64_t main_tokens = 0;     ///< slots without look-ahead
  std::int64_t total_computed = 0;  ///< local and external
  std::int64_t local_computed = 0;
  bool apply_admission_cap = false;
};

/// Blocks that leave the free order when a demand is met.
struct BlockNeed {
  std::int64_t fresh = 0;      ///< taken anew; below 0: the group has more than it needs
  std::int64_t evictable = 0;  ///< hits that nobody holds now

  [[nodiscard]] std::int64_t total() const noexcept { return fresh + evictable; }
};

/// ceil(a / b) for b > 0.
[[nodiscard]] constexpr std::int64_t cdiv(std::int64_t a, std::int64_t b) noexcept {
  return a / b + (a % b > 0 ? 1 : 0);
}

/// a / b rounded down, for b > 0.
[[nodiscard]] constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) noexcept {
  return a / b - (a % b < 0 ? 1 : 0);
}

}  // namespace kvpool
