// How a step is cut for the CPU: items of query rows that share KV rows, each over a run of splits.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/plan_impl.hpp"

namespace kvpool::kernels {

/// Queries [first_query, +queries) of a sequence times the heads [first_head, +heads) of one KV head's group, against
/// the splits [first_split, end_split). Stands for one such block per KV head.
struct RowBlock {
  std::int64_t sequence;
  std::int64_t first_query;
  std::int64_t queries;
  std::int64_t first_head;  ///< inside the group
  std::int64_t heads;
  std::int64_t first_split;
  std::int64_t end_split;

  [[nodiscard]] std::int64_t rows() const noexcept { return queries * heads; }
  [[nodiscard]] std::int64_t splits() const noexcept { return end_split - first_split; }
};

/// A run of splits of one block. `slot`: where its partial results start, counted in splits, when the block is cut.
struct WorkItem {
  std::int64_t block;
  std::int64_t first_split;
  std::int64_t end_split;
};

struct WorkPlan {
  std::int64_t split_size = 0;  ///< keys
  std::vector<RowBlock> blocks;
  std::vector<WorkItem> items;
  bool cut = false;                      ///< blocks are cut into several items, whose partials are merged afterwards
  std::vector<std::int64_t> first_slot;  ///< [blocks + 1] splits before each block, when cut
};

/// Splits never depend on the number of threads, only their distribution does: the order of all sums is the same.
[[nodiscard]] WorkPlan plan_work(const StepInput& step, int threads);

/// KV heads that one item should take: several when the heads of a token lie side by side, so that pages are read in
/// the order of memory; 1 otherwise, for many rows, and where threads would be left without work. Changes no bit.
[[nodiscard]] std::int64_t heads_together(const PagedKvView& kv, const WorkPlan& plan, int threads);

}  // namespace kvpool::kernels
