#include "tools/launch/driver/step_builder.hpp"

#include <algorithm>
#include <iterator>

#include "tools/launch/step/table_mirror.hpp"

namespace kvpool::launch {
namespace {

std::vector<std::int64_t> slots_of(const std::vector<std::uint32_t>& table, std::int64_t first, std::size_t count,
                                   std::int64_t block_size) {
  std::vector<std::int64_t> slots(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t position = first + static_cast<std::int64_t>(i);
    slots[i] =
        std::int64_t{table[static_cast<std::size_t>(position / block_size)]} * block_size + position % block_size;
  }
  return slots;
}

}  // namespace

StepMessage StepBuilder::build(const scheduler::StepBatch& batch, std::uint64_t step) {
  StepMessage message;
  message.step = step;
  message.num_groups = static_cast<std::uint32_t>(block_sizes_.size());
  for (const std::int64_t request : batch.removed) {
    // A request that was never part of a step has no table anywhere.
    if (known_.erase(request) != 0) message.removed.push_back(static_cast<std::uint64_t>(request));
  }
  for (const BlockCopy& copy : batch.copies) message.copies.push_back({copy.source.value(), copy.target.value()});
  for (const scheduler::ScheduledSequence& scheduled : batch.sequences) {
    StepSequence sequence;
    sequence.request = static_cast<std::uint64_t>(scheduled.index);
    sequence.num_computed = static_cast<std::uint32_t>(scheduled.num_computed);
    sequence.num_outputs = scheduled.produces_output ? 1 : 0;
    sequence.tokens.assign(scheduled.tokens.begin(), scheduled.tokens.end());
    Tables& known = known_.try_emplace(scheduled.index, block_sizes_.size()).first->second;
    for (std::size_t group = 0; group < block_sizes_.size(); ++group) {
      std::vector<std::uint32_t> current;
      current.reserve(scheduled.tables[group].size());
      std::transform(scheduled.tables[group].begin(), scheduled.tables[group].end(), std::back_inserter(current),
                     [](BlockId id) { return id.value(); });
      sequence.tables.push_back(table_changes(known[group], current));
      sequence.slots.push_back(slots_of(current, scheduled.num_computed, scheduled.tokens.size(), block_sizes_[group]));
      known[group] = std::move(current);
    }
    message.sequences.push_back(std::move(sequence));
  }
  return message;
}

}  // namespace kvpool::launch
