#include "kvpool/kernels/cascade_attention.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/dtype_dispatch.hpp"
#include "kernels/plan_impl.hpp"

namespace kvpool::kernels {
namespace {

/// Whole pages before the first query of every sequence, at most `pages`.
std::int64_t usable_pages(const StepInput& step, std::int64_t pages) {
  const AttentionProblem& p = step.problem;
  for (std::int64_t b = 0; b < step.num_sequences(); ++b) {
    if (step.q_len(b) > 0) pages = std::min(pages, (step.len(b) - step.q_len(b)) / p.page_size);
  }
  return std::max<std::int64_t>(pages, 0);
}

std::int64_t first_with_queries(const StepInput& step) {
  std::int64_t b = 0;
  while (step.q_len(b) == 0) ++b;
  return b;
}

Status check_shared(const StepInput& step, const PageTable& table, std::int64_t pages) {
  const std::int32_t* first = table.entries + first_with_queries(step) * table.row_stride;
  for (std::int64_t b = 0; b < step.num_sequences(); ++b) {
    const std::int32_t* own = table.entries + b * table.row_stride;
    if (step.q_len(b) == 0 || std::equal(first, first + pages, own)) continue;
    return {ErrorCode::invalid_argument, "sequence " + std::to_string(b) + " does not have the first " +
                                             std::to_string(pages) + " pages of the others"};
  }
  return {};
}

struct Level {
  std::vector<float> out;
  std::vector<float> lse;

  explicit Level(const StepInput& step)
      : out(static_cast<std::size_t>(step.num_tokens() * step.problem.num_query_heads * step.problem.head_dim_v)),
        lse(static_cast<std::size_t>(step.num_tokens() * step.problem.num_query_heads)) {}

  [[nodiscard]] AttentionArgs args(const AttentionArgs& whole, const AttentionProblem& p) {
    AttentionArgs level = whole;
    level.out = dense_output(out.data(), DType::float32, p.num_query_heads, p.head_dim_v);
    level.lse = lse.data();
    return level;
  }
};

/// The shared pages: one sequence that has the queries of all. Sinks join the other level.
Status attend_prefix(const StepInput& step, std::int64_t pages, const AttentionArgs& args, Level& level) {
  AttentionProblem problem = step.problem;
  problem.causal = false;
  AttentionArgs shared = level.args(args, problem);
  shared.rules.sinks = {};
  shared.table.entries += first_with_queries(step) * args.table.row_stride;
  const std::int32_t lens[] = {static_cast<std::int32_t>(pages * problem.page_size)};
  const std::int32_t cu_q[] = {0, static_cast<std::int32_t>(step.num_tokens())};
  return paged_attention(problem, lens, cu_q, shared, step.exec);
}

Status attend_rest(const StepInput& step, std::int64_t pages, const AttentionArgs& args, Level& level) {
  AttentionArgs own = level.args(args, step.problem);
  own.table.entries += pages;
  own.table.columns -= pages;
  std::vector<std::int32_t> lens = step.seq_lens;
  for (std::int32_t& len : lens) len = std::max(0, len - static_cast<std::int32_t>(pages * step.problem.page_size));
  return paged_attention(step.problem, lens, step.cu_q, own, step.exec);
}

void write_results(const StepInput& step, const Level& level, const AttentionArgs& args) {
  const std::int64_t heads = step.problem.num_query_heads;
  const std::int64_t dim = step.problem.head_dim_v;
  with_compute_type(args.out.dtype, [&](auto tag) {
    using Value = typename decltype(tag)::type;
    for (std::int64_t row = 0; row < step.num_tokens() * heads; ++row) {
      const float* from = level.out.data() + row * dim;
      auto* to =
          static_cast<Value*>(args.out.data) + row / heads * args.out.token_stride + row % heads * args.out.head_stride;
      for (std::int64_t d = 0; d < dim; ++d) to[d] = stored_form<Value>(from[d], 1.0F);
    }
  });
  if (args.lse != nullptr) std::copy(level.lse.begin(), level.lse.end(), args.lse);
}

}  // namespace

Status cascade_attention(const AttentionProblem& problem, std::span<const std::int32_t> seq_lens,
                         std::span<const std::int32_t> cu_q, std::int64_t prefix_pages, const AttentionArgs& args,
                         const ExecOptions& exec) {
  if (prefix_pages < 0) {
    return {ErrorCode::invalid_argument, "prefix_pages is " + std::to_string(prefix_pages) + ", must not be negative"};
  }
  if (exec.backend == Backend::cuda) {
    return {ErrorCode::unsupported,
            "cascade_attention runs on the cpu and reference backends; on cuda run the two plans"};
  }
  const auto step = check_problem(problem, seq_lens, cu_q, exec);
  if (!step) return step.status();
  const bool needs_positions = problem.sliding_window > 0 || !args.rules.alibi_slopes.empty() || !problem.causal;
  const std::int64_t pages = step->num_tokens() == 0 || needs_positions ? 0 : usable_pages(*step, prefix_pages);
  if (pages == 0) return paged_attention(problem, seq_lens, cu_q, args, exec);
  if (Status status = check_args(*step, args); !status) return status;
  if (Status status = check_pages(*step, args); !status) return status;
  if (Status status = check_shared(*step, args.table, pages); !status) return status;

  Level prefix(*step);
  Level rest(*step);
  if (Status status = attend_prefix(*step, pages, args, prefix); !status) return status;
  if (Status status = attend_rest(*step, pages, args, rest); !status) return status;
  const auto rows = static_cast<std::int64_t>(prefix.lse.size());
  Status merged = merge_attention(prefix.out.data(), prefix.lse.data(), rest.out.data(), rest.lse.data(),
                                  prefix.out.data(), prefix.lse.data(), rows, problem.head_dim_v, exec);
  if (!merged) return merged;
  write_results(*step, prefix, args);
  return {};
}

}  // namespace kvpool::kernels
