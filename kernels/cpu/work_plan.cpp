#include "kernels/cpu/work_plan.hpp"

#include <unistd.h>

#include <algorithm>

#include "kernels/cpu/row_task.hpp"
#include "kernels/dtype_dispatch.hpp"

namespace kvpool::kernels {
namespace {

/// Without a fixed split: long enough that merging costs nothing, short enough to share one long sequence.
constexpr std::int64_t kDefaultSplit = 1024;

/// With more rows a task computes more than it reads, and the order of reading does not matter.
constexpr std::int64_t kFewRows = 16;

/// Bytes that a tile and the next one may take in the second-level cache.
std::int64_t tile_budget() {
  static const std::int64_t kBudget = [] {
    long bytes = -1;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return bytes > 0 ? bytes / 2 : std::int64_t{1} << 19;
  }();
  return kBudget;
}

void add_blocks(const StepInput& step, std::int64_t b, WorkPlan& plan) {
  const std::int64_t group = step.group();
  for (std::int64_t head = 0; head < group; head += kMaxTaskRows) {
    const std::int64_t heads = std::min(kMaxTaskRows, group - head);
    const std::int64_t per_block = std::max<std::int64_t>(1, kMaxTaskRows / heads);
    for (std::int64_t query = 0; query < step.q_len(b); query += per_block) {
      RowBlock block{b, query, std::min(per_block, step.q_len(b) - query), head, heads, 0, 0};
      if (step.len(b) > 0) {
        block.first_split = step.first_key(step.position(b, query)) / plan.split_size;
        block.end_split = step.position(b, query + block.queries - 1) / plan.split_size + 1;
      }
      plan.blocks.push_back(block);
    }
  }
}

}  // namespace

WorkPlan plan_work(const StepInput& step, int threads) {
  WorkPlan plan;
  plan.split_size = step.problem.fixed_split > 0 ? step.problem.fixed_split : kDefaultSplit;
  for (std::int64_t b = 0; b < step.num_sequences(); ++b) add_blocks(step, b, plan);

  const auto pieces = static_cast<std::int64_t>(plan.blocks.size()) * step.problem.num_kv_heads;
  std::int64_t parts = 1;
  if (threads > 1 && pieces > 0 && pieces < 2 * threads) parts = (4 * threads + pieces - 1) / pieces;
  plan.first_slot.push_back(0);
  for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
    const RowBlock& block = plan.blocks[i];
    const std::int64_t count = std::clamp<std::int64_t>(block.splits(), 1, parts);
    for (std::int64_t part = 0; part < count; ++part) {
      plan.items.push_back({static_cast<std::int64_t>(i), block.first_split + block.splits() * part / count,
                            block.first_split + block.splits() * (part + 1) / count});
    }
    plan.cut = plan.cut || count > 1;
    plan.first_slot.push_back(plan.first_slot.back() + block.splits());
  }
  return plan;
}

std::int64_t heads_together(const PagedKvView& kv, const WorkPlan& plan, int threads) {
  const auto beside = [](const PagedRows& rows) {
    return rows.head_stride > 0 && rows.head_stride < rows.token_stride;
  };
  if (!beside(kv.k) || !beside(kv.v)) return 1;
  for (const RowBlock& block : plan.blocks) {
    if (block.rows() > kFewRows) return 1;
  }
  const std::int64_t head_bytes = 2 * kKeyTile * (kv.head_dim + kv.head_dim_v) * element_bytes(kv.dtype);
  std::int64_t heads =
      std::clamp<std::int64_t>(tile_budget() / head_bytes, 1, std::min(kv.num_kv_heads, kMaxTaskHeads));
  const auto items = static_cast<std::int64_t>(plan.items.size());
  while (threads > 1 && heads > 1 && items * ((kv.num_kv_heads + heads - 1) / heads) < 2 * threads)
    heads = (heads + 1) / 2;
  return heads;
}

}  // namespace kvpool::kernels
