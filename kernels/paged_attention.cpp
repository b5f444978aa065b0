#include "kvpool/kernels/paged_attention.hpp"

#include <string>
#include <utility>

#include "kernels/plan_impl.hpp"

namespace kvpool::kernels {
namespace {

Error refusal(const std::string& message) { return {ErrorCode::invalid_argument, message}; }

PlanResult make_plan_of(StepInput step, const PlanCapacity& capacity) {
  switch (step.exec.backend) {
    case Backend::reference: return make_reference_plan(std::move(step));
    case Backend::cpu: return make_cpu_plan(std::move(step));
    case Backend::cuda: return make_cuda_plan(std::move(step), capacity);
  }
  return refusal("unknown backend");
}

bool is_given(const PlanCapacity& capacity) {
  return capacity.max_sequences > 0 && capacity.max_tokens > 0 && capacity.max_len > 0;
}

Status check_capacity(const StepInput& step, const PlanCapacity& capacity) {
  const std::pair<const char*, std::pair<std::int64_t, std::int64_t>> terms[] = {
      {"sequences", {step.num_sequences(), capacity.max_sequences}},
      {"query tokens", {step.num_tokens(), capacity.max_tokens}},
      {"tokens in its longest sequence", {step.max_len, capacity.max_len}}};
  for (const auto& [name, values] : terms) {
    if (values.first > values.second) {
      return refusal("the step has " + std::to_string(values.first) + " " + name + ", the plan holds " +
                     std::to_string(values.second));
    }
  }
  return {};
}

}  // namespace

QueryRows dense_queries(const void* data, DType dtype, std::int64_t heads, std::int64_t dim) noexcept {
  return {data, dtype, heads * dim, dim};
}

OutputRows dense_output(void* data, DType dtype, std::int64_t heads, std::int64_t dim) noexcept {
  return {data, dtype, heads * dim, dim};
}

AttentionPlan::AttentionPlan(std::unique_ptr<Impl> impl, const PlanCapacity& capacity) noexcept
    : impl_(std::move(impl)), capacity_(capacity) {}
AttentionPlan::AttentionPlan(AttentionPlan&&) noexcept = default;
AttentionPlan& AttentionPlan::operator=(AttentionPlan&&) noexcept = default;
AttentionPlan::~AttentionPlan() = default;

Result<AttentionPlan> AttentionPlan::make(const AttentionProblem& problem, std::span<const std::int32_t> seq_lens,
                                          std::span<const std::int32_t> cu_q, const ExecOptions& exec) {
  auto step = check_problem(problem, seq_lens, cu_q, exec);
  if (!step) return step.error();
  auto impl = make_plan_of(std::move(*step), {});
  if (!impl) return impl.error();
  return AttentionPlan(std::move(*impl));
}

Result<AttentionPlan> AttentionPlan::reserve(const AttentionProblem& problem, const PlanCapacity& capacity,
                                             const ExecOptions& exec) {
  if (!is_given(capacity)) {
    return refusal("a plan needs room for 1 sequence, 1 query token and 1 token at least, not " +
                   std::to_string(capacity.max_sequences) + ", " + std::to_string(capacity.max_tokens) + " and " +
                   std::to_string(capacity.max_len));
  }
  auto step = check_problem(problem, {}, {}, exec);
  if (!step) return step.error();
  auto impl = make_plan_of(std::move(*step), capacity);
  if (!impl) return impl.error();
  return AttentionPlan(std::move(*impl), capacity);
}

Status AttentionPlan::replan(std::span<const std::int32_t> seq_lens, std::span<const std::int32_t> cu_q) {
  auto step = check_problem(impl_->step().problem, seq_lens, cu_q, impl_->step().exec);
  if (!step) return step.status();
  if (is_given(capacity_)) {
    if (Status status = check_capacity(*step, capacity_); !status) return status;
  }
  const auto reused = impl_->replan(*step);
  if (!reused) return reused.status();
  if (*reused) return {};
  auto impl = make_plan_of(std::move(*step), capacity_);
  if (!impl) return impl.status();
  impl_ = std::move(*impl);
  return {};
}

Status AttentionPlan::run(const AttentionArgs& args) {
  if (Status status = check_args(impl_->step(), args); !status) return status;
  if (impl_->step().num_tokens() == 0) return {};
  return impl_->run(args);
}

const AttentionProblem& AttentionPlan::problem() const noexcept { return impl_->step().problem; }
const ExecOptions& AttentionPlan::exec() const noexcept { return impl_->step().exec; }
std::int64_t AttentionPlan::num_sequences() const noexcept { return impl_->step().num_sequences(); }
std::int64_t AttentionPlan::num_tokens() const noexcept { return impl_->step().num_tokens(); }
std::int64_t AttentionPlan::num_work_items() const noexcept { return impl_->num_work_items(); }
std::int64_t AttentionPlan::num_partials() const noexcept { return impl_->num_partials(); }
std::optional<CpuTier> AttentionPlan::tier() const noexcept { return impl_->tier(); }

Status paged_attention(const AttentionProblem& problem, std::span<const std::int32_t> seq_lens,
                       std::span<const std::int32_t> cu_q, const AttentionArgs& args, const ExecOptions& exec) {
  auto plan = AttentionPlan::make(problem, seq_lens, cu_q, exec);
  return plan ? plan->run(args) : plan.status();
}

}  // namespace kvpool::kernels
