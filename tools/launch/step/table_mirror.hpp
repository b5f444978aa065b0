// Block tables as one rank knows them: built from the changes that steps bring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "tools/launch/step/step_message.hpp"

namespace kvpool::launch {

/// Called for every entry that changes: (request, group, index, new block).
using TableChangeSink = std::function<void(std::uint64_t, std::size_t, std::size_t, std::uint32_t)>;

/// Not thread-safe.
class TableMirror {
 public:
  /// block_sizes: tokens per block, one entry per group; num_blocks: ids are below it.
  TableMirror(std::vector<std::int64_t> block_sizes, std::int64_t num_blocks, TableChangeSink sink = {});

  /// Applies one step: removals, then each sequence's updates; compares lengths and slots with the tables.
  /// Errors: layout_mismatch naming request, group and first differing index or token.
  [[nodiscard]] Status apply(const StepMessage& message);

  /// Ids are below `num_blocks` from now on; the tables of the old pool are removed by the next step.
  void pool_changed(std::int64_t num_blocks) noexcept { num_blocks_ = num_blocks; }

  /// Blocks of a request in one group; empty when unknown.
  [[nodiscard]] std::span<const std::uint32_t> table(std::uint64_t request, std::size_t group) const;
  [[nodiscard]] std::size_t num_requests() const noexcept { return tables_.size(); }

 private:
  using Tables = std::vector<std::vector<std::uint32_t>>;

  [[nodiscard]] Status apply_update(const StepSequence& sequence, std::size_t group, std::vector<std::uint32_t>& table);
  [[nodiscard]] Status check_slots(const StepSequence& sequence, std::size_t group,
                                   std::span<const std::uint32_t> table) const;

  std::vector<std::int64_t> block_sizes_;
  std::int64_t num_blocks_;
  TableChangeSink sink_;
  std::unordered_map<std::uint64_t, Tables> tables_;
};

/// The changes that turn `known` into `current`: entries that differ, and everything past the end of `known`.
[[nodiscard]] TableUpdate table_changes(std::span<const std::uint32_t> known, std::span<const std::uint32_t> current);

}  // namespace kvpool::launch
