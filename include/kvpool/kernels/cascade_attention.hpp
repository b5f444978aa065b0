// Attention of a step whose sequences begin with the same pages: the shared prefix is read once for all of them.
#pragma once

#include <cstdint>
#include <span>

#include "kvpool/kernels/paged_attention.hpp"

namespace kvpool::kernels {

/// What paged_attention() computes, in two levels and a merge: the first `prefix_pages` pages, which the rows of
/// `args.table` must have in common, as keys of all queries together, and what each sequence has behind them.
/// `prefix_pages` is what KVCacheManager::get_num_common_prefix_blocks answers for a group whose tables these are; of
/// it are used as many whole pages as lie before the first query of every sequence (sequences without queries do not
/// count).
///
/// Computed in one level, and so right but no faster, when no page is left, and when a window, ALiBi or `causal =
/// false` asks for positions or keys that a level does not have. Results differ from one level by rounding: every
/// output type has the error of its own rounding once, since both levels are kept in fp32.
///
/// Shapes, units and errors of `args` are those of paged_attention(); moreover invalid_argument, before any work, for a
/// negative `prefix_pages` and for a sequence whose first pages are not those of the others, and unsupported for cuda,
/// whose tables and results are device memory: there the two plans are the caller's. Blocking. Memory: two fp32
/// results. O(B * prefix_pages) besides the attention.
[[nodiscard]] Status cascade_attention(const AttentionProblem& problem, std::span<const std::int32_t> seq_lens,
                                       std::span<const std::int32_t> cu_q, std::int64_t prefix_pages,
                                       const AttentionArgs& args, const ExecOptions& exec = {});

}  // namespace kvpool::kernels
