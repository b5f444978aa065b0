#include "kvpool/kernels/paged_attention.hpp"

#include <utility>

#include "kernels/plan_impl.hpp"

namespace kvpool::kernels {
namespace {

PlanResult make_plan_of(Backend backend, StepInput step) {
  switch (backend) {
    case Backend::reference: return make_reference_plan(std::move(step));
    case Backend::cpu: return make_cpu_plan(std::move(step));
    case Backend::cuda: return make_cuda_plan(std::move(step));
  }
  return Error{ErrorCode::invalid_argument, "unknown backend"};
}

}  // namespace

QueryRows dense_queries(const void* data, DType dtype, std::int64_t heads, std::int64_t dim) noexcept {
  return {data, dtype, heads * dim, dim};
}

OutputRows dense_output(void* data, DType dtype, std::int64_t heads, std::int64_t dim) noexcept {
  return {data, dtype, heads * dim, dim};
}

AttentionPlan::AttentionPlan(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
AttentionPlan::AttentionPlan(AttentionPlan&&) noexcept = default;
AttentionPlan& AttentionPlan::operator=(AttentionPlan&&) noexcept = default;
AttentionPlan::~AttentionPlan() = default;

Result<AttentionPlan> AttentionPlan::make(const AttentionProblem& problem, std::span<const std::int32_t> seq_lens,
                                          std::span<const std::int32_t> cu_q, const ExecOptions& exec) {
  auto step = check_problem(problem, seq_lens, cu_q, exec);
  if (!step) return step.error();
  auto impl = make_plan_of(exec.backend, std::move(*step));
  if (!impl) return impl.error();
  return AttentionPlan(std::move(*impl));
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
