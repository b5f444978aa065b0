// What every backend's plan has in common, and how the dispatcher gets one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvpool/kernels/paged_attention.hpp"

namespace kvpool::kernels {

/// A step as the caller described it; arrays are copies.
struct StepInput {
  AttentionProblem problem;
  ExecOptions exec;
  std::vector<std::int32_t> seq_lens;  ///< [B]
  std::vector<std::int32_t> cu_q;      ///< [B + 1], also for decode
  std::int64_t max_len = 0;

  [[nodiscard]] std::int64_t num_sequences() const noexcept { return static_cast<std::int64_t>(seq_lens.size()); }
  [[nodiscard]] std::int64_t num_tokens() const noexcept { return cu_q.empty() ? 0 : cu_q.back(); }
  [[nodiscard]] std::int64_t len(std::int64_t b) const { return seq_lens[static_cast<std::size_t>(b)]; }
  [[nodiscard]] std::int64_t first_token(std::int64_t b) const { return cu_q[static_cast<std::size_t>(b)]; }
  [[nodiscard]] std::int64_t q_len(std::int64_t b) const { return first_token(b + 1) - first_token(b); }
  [[nodiscard]] std::int64_t group() const noexcept { return problem.num_query_heads / problem.num_kv_heads; }
  /// Position of query i of sequence b; negative when the sequence is empty.
  [[nodiscard]] std::int64_t position(std::int64_t b, std::int64_t i) const {
    return problem.causal ? len(b) - q_len(b) + i : len(b) - 1;
  }
  /// First key that a query at `position` sees.
  [[nodiscard]] std::int64_t first_key(std::int64_t position) const noexcept {
    const std::int64_t window = problem.sliding_window;
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
};

class AttentionPlan::Impl {
 public:
  explicit Impl(StepInput step) : step_(std::move(step)) {}
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Arguments have passed check_args().
  [[nodiscard]] virtual Status run(const AttentionArgs& args) = 0;
  /// Takes another step in the arrays it has; false when it has no way to, and a new plan must be made.
  [[nodiscard]] virtual Result<bool> replan(const StepInput& /*step*/) { return false; }
  [[nodiscard]] virtual std::int64_t num_work_items() const noexcept = 0;
  [[nodiscard]] virtual std::int64_t num_partials() const noexcept = 0;
  [[nodiscard]] virtual std::optional<CpuTier> tier() const noexcept { return std::nullopt; }

  [[nodiscard]] const StepInput& step() const noexcept { return step_; }

 protected:
  StepInput step_;
};

using PlanResult = Result<std::unique_ptr<AttentionPlan::Impl>>;

/// Each takes a step that has passed check_problem().
[[nodiscard]] PlanResult make_reference_plan(StepInput step);
[[nodiscard]] PlanResult make_cpu_plan(StepInput step);
/// A capacity of zeros: lists as long as this step needs.
[[nodiscard]] PlanResult make_cuda_plan(StepInput step, const PlanCapacity& capacity);

/// Refusals by name, before any work.
[[nodiscard]] Result<StepInput> check_problem(const AttentionProblem& problem, std::span<const std::int32_t> seq_lens,
                                              std::span<const std::int32_t> cu_q, const ExecOptions& exec);
[[nodiscard]] Status check_args(const StepInput& step, const AttentionArgs& args);
/// For tables in host memory: every page that a query may read lies in the pool.
[[nodiscard]] Status check_pages(const StepInput& step, const AttentionArgs& args);

/// The factors of K and V for one KV head; 1 unless the cache is fp8.
struct HeadScales {
  float k = 1;
  float v = 1;
};
[[nodiscard]] HeadScales head_scales(const KvScales& scales, const PagedKvView& kv, std::int64_t head) noexcept;
[[nodiscard]] float logit_scale(const AttentionArgs& args) noexcept;

}  // namespace kvpool::kernels
