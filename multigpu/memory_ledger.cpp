#include <algorithm>

#include "kvpool/multigpu/memory_profile.hpp"

namespace kvpool {

std::vector<LedgerLine> ledger_lines(const MemoryLedger& ledger) {
  return {
      {"total", ledger.total},
      {"weights", ledger.weights},
      {"peak_activations", ledger.peak_activations},
      {"communicator", ledger.communicator},
      {"graphs", ledger.graphs},
      {"context", ledger.context},
      {"other_processes", ledger.other_processes},
      {"safety", ledger.safety},
      {"kv_pool", ledger.kv_pool},
      {"unknown", ledger.unknown},
      {"unused", ledger.unused},
  };
}

std::string format_ledger(const MemoryLedger& ledger) {
  std::size_t width = 0;
  const auto lines = ledger_lines(ledger);
  for (const auto& line : lines) width = std::max(width, line.key.size());
  const auto row = [&](const std::string& key, const std::optional<std::int64_t>& bytes) {
    std::string number = bytes ? std::to_string(*bytes) : "unknown";
    if (number.size() < 16) number.insert(0, 16 - number.size(), ' ');
    return key + std::string(width + 2 - std::min(width, key.size()), ' ') + number + "\n";
  };
  std::string text;
  for (const auto& line : lines) text += row(line.key, line.bytes);
  text += "limit by utilisation " + std::to_string(ledger.utilization_limit) + ", total from " + ledger.total_source;
  if (ledger.graphs_estimate) text += ", graphs were estimated at " + std::to_string(*ledger.graphs_estimate);
  text += ledger.estimated ? ", estimated\n" : "\n";
  for (const auto& note : ledger.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace kvpool
