#include "tests/kernels/simt_attention.hpp"

#include "kernels/cuda/attend_plan.hpp"
#include "kernels/cuda/merge.cuh"

namespace kvpool::kernels::test {
namespace {

template <class Cache, int Lanes, int Rows>
simt::LaunchResult attend(const gpu::AttendParams& params, const gpu::AttendPlan& plan,
                          const simt::LaunchOptions& options) {
  simt::Grid grid;
  grid.x = static_cast<int>(plan.items.size());
  grid.y = params.num_kv_heads;
  grid.threads = gpu::kThreads;
  grid.shared_bytes = static_cast<std::size_t>(gpu::AttendBlock<Cache, Lanes, Rows>::shared_bytes());
  return simt::launch(
      grid, [&] { gpu::attend_block<Cache, Lanes, Rows>(params); }, options);
}

#if defined(KVPOOL_PLANT_BUGS)
/// One kernel is enough to plant bugs in.
simt::LaunchResult attend_any(DType /*cache*/, int /*lanes*/, const gpu::AttendParams& params,
                              const gpu::AttendPlan& plan, const simt::LaunchOptions& options) {
  return attend<Bf16, 16, 4>(params, plan, options);
}
#else
template <class Cache, int Lanes>
simt::LaunchResult attend_rows(const gpu::AttendParams& params, const gpu::AttendPlan& plan,
                               const simt::LaunchOptions& options) {
  if (plan.rows_per_block == 1) return attend<Cache, Lanes, 1>(params, plan, options);
  return attend<Cache, Lanes, 4>(params, plan, options);
}

template <class Cache>
simt::LaunchResult attend_lanes(int lanes, const gpu::AttendParams& params, const gpu::AttendPlan& plan,
                                const simt::LaunchOptions& options) {
  if (lanes == 8) return attend_rows<Cache, 8>(params, plan, options);
  if (lanes == 16) return attend_rows<Cache, 16>(params, plan, options);
  return attend_rows<Cache, 32>(params, plan, options);
}

simt::LaunchResult attend_any(DType cache, int lanes, const gpu::AttendParams& params, const gpu::AttendPlan& plan,
                              const simt::LaunchOptions& options) {
  switch (cache) {
    case DType::float16: return attend_lanes<Fp16>(lanes, params, plan, options);
    case DType::fp8_e4m3: return attend_lanes<E4m3>(lanes, params, plan, options);
    case DType::fp8_e5m2: return attend_lanes<E5m2>(lanes, params, plan, options);
    case DType::bfloat16:
    case DType::float32:
    case DType::uint8: break;
  }
  return attend_lanes<Bf16>(lanes, params, plan, options);
}
#endif

}  // namespace

Output run_on_simt(const AttentionCase& c, const SimtRun& run) {
  const std::int64_t rows = c.num_tokens() * c.spec.kv_heads * c.spec.group;
  Output output;
  output.bytes.assign(static_cast<std::size_t>(rows * c.dim_v * element_bytes(c.spec.out)), 0xFF);
  output.lse.assign(static_cast<std::size_t>(rows), std::numeric_limits<float>::quiet_NaN());
  const AttentionArgs args = c.args(output.bytes.data(), output.lse.data());
  const auto step = check_problem(c.problem(), c.spec.seq_lens, c.cu_q, {});
  output.status = !step ? step.status() : gpu::check_device_problem(c.problem());
  if (output.status) output.status = gpu::check_device_args(args);
  if (!output.status || rows == 0) return output;

  const gpu::AttendPlan plan = gpu::plan_attend(*step, run.target_blocks);
  const auto partials = static_cast<std::size_t>(plan.num_slots * c.spec.kv_heads * plan.rows_per_block);
  std::vector<float> out(partials * static_cast<std::size_t>(c.dim_v), std::numeric_limits<float>::quiet_NaN());
  std::vector<float> lse(partials, std::numeric_limits<float>::quiet_NaN());
  gpu::AttendParams attend = gpu::attend_params(*step, args);
  attend.items = plan.items.data();
  attend.blocks = plan.blocks.data();
  attend.partials = {out.data(), lse.data()};
  simt::LaunchResult result;
  if (!plan.items.empty()) result = attend_any(c.spec.cache, gpu::lanes_for(c.problem()), attend, plan, run.launch);
  if (result.ok()) {
    gpu::MergeParams merge = gpu::merge_params(*step, args, plan.rows_per_block);
    merge.blocks = plan.blocks.data();
    merge.partials = attend.partials;
    simt::Grid grid;
    grid.x = static_cast<int>(plan.blocks.size()) * plan.rows_per_block;
    grid.y = static_cast<int>(c.spec.kv_heads);
    grid.threads = 64;
    result = simt::launch(
        grid, [&] { gpu::merge_block(merge); }, run.launch);
  }
  if (!result.ok()) output.status = Status{ErrorCode::internal, result.error};
  return output;
}

}  // namespace kvpool::kernels::test
