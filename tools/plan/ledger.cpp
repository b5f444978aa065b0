#include "tools/plan/ledger.hpp"

#include <algorithm>
#include <cmath>

namespace kvpool::tools {

std::int64_t usable_bytes(std::int64_t total, double utilization) {
  const double usable = std::ceil(static_cast<double>(total) * utilization);
  return std::min(total, static_cast<std::int64_t>(usable));
}

std::vector<LedgerEntry> make_ledger(std::span<const StageMemory> memory, std::span<const std::int64_t> block_bytes,
                                     std::int64_t num_blocks, std::int64_t reserved_blocks) {
  std::vector<LedgerEntry> ledger;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const StageMemory& stage = memory[i];
    const auto enter = [&, number = static_cast<std::int64_t>(i)](const char* name, std::int64_t bytes,
                                                                  const char* source) {
      ledger.push_back({number, name, bytes, source});
    };
    const std::int64_t reserved = std::min(reserved_blocks, num_blocks) * block_bytes[i];
    const std::int64_t pool = num_blocks * block_bytes[i];
    enter("outside_utilization", stage.total_bytes - stage.usable_bytes, "total minus the utilization limit");
    enter("weights", stage.weight_bytes, stage.weights_given ? "given" : "estimated from the shapes");
    enter("peak_activations", stage.peak_bytes, stage.peak_given ? "given" : "estimated from the shapes");
    enter("kv_reserved_blocks", reserved, "null block and attention sinks");
    enter("kv_blocks", pool - reserved, "blocks that serve requests");
    const std::int64_t rest = stage.available_bytes() - pool;
    if (rest >= 0) {
      enter("unused", rest, "less than a block, or more than the tightest stage has");
    } else {
      enter("overcommitted", rest, "weights and activations beyond the limit");
    }
  }
  return ledger;
}

}  // namespace kvpool::tools
