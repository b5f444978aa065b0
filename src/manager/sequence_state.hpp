// What the cache keeps for one request, apart from the managers: those hold no per-request state, so
// that threads can work on different requests without meeting.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kvpool/block/block_id.hpp"
#include "kvpool/manager/kv_cache_manager.hpp"

namespace kvpool {

/// A block at table position `index` whose content is only valid for a part: it is copied before the
/// request writes into it.
struct PartialHit {
  std::int64_t index = 0;
  BlockId source{};
};

/// Blocks at the front of a table that have the same number of references, as long as BlockPool::sharing_changes()
/// stays at `changes`: the table holds them, so every change of their references is one of those.
struct SharedRun {
  std::uint64_t changes = 0;
  std::uint32_t refs = 0;
  std::int64_t length = 0;  ///< blocks
};

/// One request in one group.
struct GroupState {
  static constexpr std::int64_t kUntracked = -1;

  std::vector<BlockId> table;            ///< block of each logical position, kNullBlock where none is needed
  bool has_table = false;                ///< counted among the requests of the group
  std::int64_t num_cached = kUntracked;  ///< leading blocks whose content is settled; kUntracked: never touched
  std::optional<PartialHit> partial;
  std::optional<SharedRun> shared_run;  ///< the last one found

  // State groups in mode "align" only.
  bool allocated = false;                     ///< got its running and speculative blocks
  std::optional<std::int64_t> last_state;     ///< position of the state of the step before
  std::optional<std::int64_t> tail_boundary;  ///< tokens covered by the registered prompt tail
  std::vector<PartialTailOffload> offloads;   ///< not yet taken

  [[nodiscard]] bool tracked() const noexcept { return num_cached != kUntracked; }
  [[nodiscard]] std::int64_t length() const noexcept { return static_cast<std::int64_t>(table.size()); }
};

struct SequenceState {
  std::vector<GroupState> groups;
  std::vector<BlockId> pins;      ///< tails handed to a connector, kept until the request is freed
  std::atomic<bool> busy{false};  ///< one thread at a time

  /// Nothing was allocated, found or loaded for the request yet.
  [[nodiscard]] bool fresh() const noexcept {
    return std::all_of(groups.begin(), groups.end(),
                       [](const GroupState& group) { return !group.tracked() && group.table.empty(); });
  }
};

}  // namespace kvpool
