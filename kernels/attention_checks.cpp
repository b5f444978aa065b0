// Everything that is refused, in one place: backends start from arguments that make sense.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "kernels/dtype_dispatch.hpp"
#include "kernels/plan_impl.hpp"

namespace kvpool::kernels {
namespace {

Error refusal(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

Status check_sizes(const AttentionProblem& p) {
  for (const auto& [name, value] : {std::pair{"num_query_heads", p.num_query_heads},
                                    {"num_kv_heads", p.num_kv_heads},
                                    {"head_dim", p.head_dim},
                                    {"head_dim_v", p.head_dim_v},
                                    {"page_size", p.page_size}}) {
    if (value < 1) return refusal(std::string(name) + " is " + std::to_string(value) + "; it must be 1 or more");
  }
  for (const auto& [name, value] : {std::pair{"sliding_window", p.sliding_window}, {"fixed_split", p.fixed_split}}) {
    if (value < 0) return refusal(std::string(name) + " is " + std::to_string(value) + "; it must not be negative");
  }
  if (p.num_query_heads % p.num_kv_heads != 0) {
    return refusal(std::to_string(p.num_query_heads) + " query heads are no multiple of " +
                   std::to_string(p.num_kv_heads) + " KV heads");
  }
  if (!p.causal && p.sliding_window > 0) {
    return refusal("a sliding window of " + std::to_string(p.sliding_window) + " needs causal attention");
  }
  return {};
}

Status check_sequence(const StepInput& step, std::int64_t b) {
  const std::int64_t len = step.len(b);
  if (len < 0) return refusal("seq_lens[" + std::to_string(b) + "] is " + std::to_string(len));
  const std::int64_t queries = step.q_len(b);
  if (queries < 0) return refusal("cu_q falls at sequence " + std::to_string(b));
  if (len > 0 && queries > len && step.problem.causal) {
    return refusal("sequence " + std::to_string(b) + " has " + std::to_string(queries) + " queries but only " +
                   std::to_string(len) + " tokens");
  }
  return {};
}

Status check_head_list(std::span<const float> list, std::int64_t heads, const char* name) {
  if (list.empty()) return {};
  if (static_cast<std::int64_t>(list.size()) != heads) {
    return refusal(std::string(name) + " has " + std::to_string(list.size()) + " entries for " + std::to_string(heads) +
                   " query heads");
  }
  for (const float value : list) {
    if (std::isnan(value)) return refusal(std::string(name) + " holds a NaN");
  }
  return {};
}

Status check_rules(const LogitRules& rules, std::int64_t heads) {
  if (rules.scale && !std::isfinite(*rules.scale)) return refusal("the scale of the logits is not finite");
  if (!std::isfinite(rules.soft_cap) || rules.soft_cap < 0) {
    return refusal("soft_cap is " + std::to_string(rules.soft_cap) + "; it must be finite and not negative");
  }
  if (Status status = check_head_list(rules.alibi_slopes, heads, "alibi_slopes"); !status) return status;
  return check_head_list(rules.sinks, heads, "sinks");
}

Status check_view(const AttentionProblem& p, const PagedKvView& kv) {
  if (Status status = validate(kv); !status) return status;
  const std::pair<const char*, std::pair<std::int64_t, std::int64_t>> fields[] = {
      {"num_kv_heads", {p.num_kv_heads, kv.num_kv_heads}},
      {"head_dim", {p.head_dim, kv.head_dim}},
      {"head_dim_v", {p.head_dim_v, kv.head_dim_v}},
      {"page_size", {p.page_size, kv.page_size}}};
  for (const auto& [name, values] : fields) {
    if (values.first != values.second) {
      return refusal(std::string(name) + " is " + std::to_string(values.first) + " in the plan and " +
                     std::to_string(values.second) + " in the cache view");
    }
  }
  return {};
}

Status check_compute_type(DType type, const char* name) {
  if (is_compute_type(type)) return {};
  return {ErrorCode::unsupported, std::string("no kernel for ") + name + " of type " + std::string(to_string(type))};
}

}  // namespace

Result<StepInput> check_problem(const AttentionProblem& problem, std::span<const std::int32_t> seq_lens,
                                std::span<const std::int32_t> cu_q, const ExecOptions& exec) {
  if (Status status = check_sizes(problem); !status) return status.error();
  if (exec.max_threads < 0) return refusal("max_threads is " + std::to_string(exec.max_threads));
  StepInput step;
  step.problem = problem;
  step.exec = exec;
  step.seq_lens.assign(seq_lens.begin(), seq_lens.end());
  if (cu_q.empty()) {
    for (std::size_t b = 0; b <= seq_lens.size(); ++b) step.cu_q.push_back(static_cast<std::int32_t>(b));
  } else {
    if (cu_q.size() != seq_lens.size() + 1 || cu_q[0] != 0) {
      return refusal("cu_q must start at 0 and hold one entry more than seq_lens (" + std::to_string(seq_lens.size()) +
                     "), not " + std::to_string(cu_q.size()));
    }
    step.cu_q.assign(cu_q.begin(), cu_q.end());
  }
  for (std::int64_t b = 0; b < step.num_sequences(); ++b) {
    if (Status status = check_sequence(step, b); !status) return status.error();
    step.max_len = std::max(step.max_len, step.len(b));
  }
  return step;
}

Status check_args(const StepInput& step, const AttentionArgs& args) {
  const AttentionProblem& p = step.problem;
  if (Status status = check_view(p, args.kv); !status) return status;
  if (Status status = validate(args.scales, p.num_kv_heads); !status) return status;
  if (Status status = check_compute_type(args.q.dtype, "queries"); !status) return status;
  if (Status status = check_compute_type(args.out.dtype, "results"); !status) return status;
  if (Status status = check_rules(args.rules, p.num_query_heads); !status) return status;
  if (!p.causal && !args.rules.alibi_slopes.empty()) return refusal("ALiBi needs causal attention");
  if (step.num_tokens() == 0) return {};
  if (args.q.data == nullptr || args.out.data == nullptr) return refusal("queries or results have no memory");
  const std::int64_t needed = (step.max_len + p.page_size - 1) / p.page_size;
  if (needed > 0 && (args.table.entries == nullptr || args.table.columns < needed)) {
    return refusal("the page table has " + std::to_string(args.table.columns) + " columns; the longest sequence of " +
                   std::to_string(step.max_len) + " tokens needs " + std::to_string(needed));
  }
  return {};
}

Status check_pages(const StepInput& step, const AttentionArgs& args) {
  const std::int64_t page_size = step.problem.page_size;
  for (std::int64_t b = 0; b < step.num_sequences(); ++b) {
    if (step.q_len(b) == 0 || step.len(b) == 0) continue;
    const std::int32_t* row = args.table.entries + b * args.table.row_stride;
    const std::int64_t last = (step.len(b) - 1) / page_size;
    for (std::int64_t i = step.first_key(step.position(b, 0)) / page_size; i <= last; ++i) {
      if (row[i] < 0 || row[i] >= args.kv.num_pages) {
        return refusal("page " + std::to_string(i) + " of sequence " + std::to_string(b) + " is " +
                       std::to_string(row[i]) + " in a pool of " + std::to_string(args.kv.num_pages));
      }
    }
  }
  return {};
}

HeadScales head_scales(const KvScales& scales, const PagedKvView& kv, std::int64_t head) noexcept {
  if (!is_fp8(kv.dtype)) return {};
  const auto pick = [&](std::span<const float> list) {
    if (list.empty()) return 1.0F;
    if (list.size() == 1) return list[0];
    return list[static_cast<std::size_t>(scales.layer * kv.num_kv_heads + head)];
  };
  return {pick(scales.k), pick(scales.v)};
}

float logit_scale(const AttentionArgs& args) noexcept {
  if (args.rules.scale) return *args.rules.scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.kv.head_dim)));
}

}  // namespace kvpool::kernels
