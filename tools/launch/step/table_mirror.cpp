#include "tools/launch/step/table_mirror.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kvpool::launch {

TableMirror::TableMirror(std::vector<std::int64_t> block_sizes, std::int64_t num_blocks, TableChangeSink sink)
    : block_sizes_(std::move(block_sizes)), num_blocks_(num_blocks), sink_(std::move(sink)) {}

Status TableMirror::apply(const StepMessage& message) {
  if (message.num_groups != block_sizes_.size()) {
    return {ErrorCode::layout_mismatch,
            fmt::format("step {}: {} groups, this rank has {}", message.step, message.num_groups, block_sizes_.size())};
  }
  for (const std::uint64_t request : message.removed) {
    if (tables_.erase(request) == 0) {
      return {ErrorCode::layout_mismatch,
              fmt::format("step {}: request {} is removed, but unknown here", message.step, request)};
    }
  }
  for (const StepSequence& sequence : message.sequences) {
    Tables& tables = tables_.try_emplace(sequence.request, block_sizes_.size()).first->second;
    for (std::size_t group = 0; group < block_sizes_.size(); ++group) {
      if (Status status = apply_update(sequence, group, tables[group]); !status.ok()) return status;
      if (Status status = check_slots(sequence, group, tables[group]); !status.ok()) return status;
    }
  }
  return {};
}

Status TableMirror::apply_update(const StepSequence& sequence, std::size_t group, std::vector<std::uint32_t>& table) {
  const TableUpdate& update = sequence.tables[group];
  const std::int64_t most = sequence.length() / block_sizes_[group] + num_blocks_;  // look-ahead blocks included
  if (update.length < table.size() || update.length > most) {
    return {ErrorCode::layout_mismatch, fmt::format("request {}, group {}: table of {} blocks after one of {}",
                                                    sequence.request, group, update.length, table.size())};
  }
  std::size_t filled = table.size();
  table.resize(update.length);
  for (const TableRun& run : update.runs) {
    // A gap before the run would leave entries that nobody has sent.
    if (run.first > filled) break;
    for (std::size_t i = 0; i < run.blocks.size(); ++i) {
      if (run.blocks[i] >= num_blocks_) {
        return {ErrorCode::layout_mismatch,
                fmt::format("request {}, group {}, index {}: block {} of {}", sequence.request, group, run.first + i,
                            run.blocks[i], num_blocks_)};
      }
      table[run.first + i] = run.blocks[i];
      if (sink_) sink_(sequence.request, group, run.first + i, run.blocks[i]);
    }
    filled = std::max(filled, run.first + run.blocks.size());
  }
  if (filled != update.length) {
    return {ErrorCode::layout_mismatch, fmt::format("request {}, group {}: entries from index {} on were never sent",
                                                    sequence.request, group, filled)};
  }
  return {};
}

Status TableMirror::check_slots(const StepSequence& sequence, std::size_t group,
                                std::span<const std::uint32_t> table) const {
  const std::int64_t block_size = block_sizes_[group];
  for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
    const std::int64_t position = sequence.num_computed + static_cast<std::int64_t>(i);
    const auto index = static_cast<std::size_t>(position / block_size);
    const std::int64_t slot = sequence.slots[group][i];
    if (index >= table.size() || table[index] == 0 ||
        slot != std::int64_t{table[index]} * block_size + position % block_size) {
      return {ErrorCode::layout_mismatch,
              fmt::format("request {}, group {}, token {}: slot {} does not agree with the table (index {}, block {})",
                          sequence.request, group, position, slot, index,
                          index < table.size() ? std::int64_t{table[index]} : -1)};
    }
  }
  return {};
}

std::span<const std::uint32_t> TableMirror::table(std::uint64_t request, std::size_t group) const {
  const auto found = tables_.find(request);
  if (found == tables_.end()) return {};
  return found->second[group];
}

TableUpdate table_changes(std::span<const std::uint32_t> known, std::span<const std::uint32_t> current) {
  TableUpdate update;
  update.length = static_cast<std::uint32_t>(current.size());
  for (std::size_t i = 0; i < current.size(); ++i) {
    if (i < known.size() && known[i] == current[i]) continue;
    if (update.runs.empty() || update.runs.back().first + update.runs.back().blocks.size() != i) {
      update.runs.push_back({static_cast<std::uint32_t>(i), {}});
    }
    update.runs.back().blocks.push_back(current[i]);
  }
  return update;
}

}  // namespace kvpool::launch
