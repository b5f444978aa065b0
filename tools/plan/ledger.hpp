// Where every byte of a GPU goes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/plan/planner.hpp"

namespace kvpool::tools {

/// One GPU of a pipeline stage before the KV cache is laid out.
struct StageMemory {
  std::int64_t total_bytes = 0;
  std::int64_t usable_bytes = 0;  ///< within the utilization limit
  std::int64_t weight_bytes = 0;
  std::int64_t peak_bytes = 0;
  bool weights_given = false;  ///< else estimated
  bool peak_given = false;     ///< else estimated

  /// For KV cache; negative when weights and activations alone are too large.
  [[nodiscard]] std::int64_t available_bytes() const noexcept { return usable_bytes - weight_bytes - peak_bytes; }
};

/// ceil(total x utilization), at most total.
[[nodiscard]] std::int64_t usable_bytes(std::int64_t total, double utilization);

/// Entries of all stages; those of one stage add up to its total_bytes. `block_bytes` per stage.
[[nodiscard]] std::vector<LedgerEntry> make_ledger(std::span<const StageMemory> memory,
                                                   std::span<const std::int64_t> block_bytes, std::int64_t num_blocks,
                                                   std::int64_t reserved_blocks);

}  // namespace kvpool::tools
