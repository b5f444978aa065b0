#include "tests/kernels/simt_attention.hpp"

#include <gtest/gtest.h>

#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/attend_mma.cuh"
#include "kernels/cuda/attend_plan.hpp"
#include "kernels/cuda/merge.cuh"

namespace kvpool::kernels::test {
namespace {

simt::Grid grid_of(const gpu::AttendParams& params, std::size_t items, int shared_bytes) {
  simt::Grid grid;
  grid.x = static_cast<int>(items);
  grid.y = params.num_kv_heads;
  grid.threads = gpu::kThreads;
  grid.shared_bytes = static_cast<std::size_t>(shared_bytes);
  return grid;
}

template <class Cache, int Lanes, int Rows>
simt::LaunchResult attend(const gpu::AttendParams& params, std::size_t items, const simt::LaunchOptions& options) {
  return simt::launch(
      grid_of(params, items, gpu::AttendBlock<Cache, Lanes, Rows>::shared_bytes()),
      [&] { gpu::attend_block<Cache, Lanes, Rows>(params); }, options);
}

template <class Cache, int Blocks, int BlocksV, bool Latent>
simt::LaunchResult attend_mma(const gpu::AttendParams& params, std::size_t items, const simt::LaunchOptions& options) {
  return simt::launch(
      grid_of(params, items, gpu::MmaBlock<Cache, Blocks, BlocksV, Latent>::shared_bytes()),
      [&] { gpu::attend_mma_block<Cache, Blocks, BlocksV, Latent>(params); }, options);
}

#if !defined(KVPOOL_PLANT_BUGS)
template <class Cache, int Lanes>
simt::LaunchResult attend_width(const gpu::AttendChoice& choice, const gpu::AttendParams& params, std::size_t items,
                                const simt::LaunchOptions& options) {
  if (choice.mma) return attend_mma<Cache, Lanes / 8, Lanes / 8, false>(params, items, options);
  if (choice.rows == 1) return attend<Cache, Lanes, 1>(params, items, options);
  return attend<Cache, Lanes, 4>(params, items, options);
}

template <class Cache>
simt::LaunchResult attend_cache(const gpu::AttendChoice& choice, const gpu::AttendParams& params, std::size_t items,
                                const simt::LaunchOptions& options) {
  if (choice.latent) {
    if constexpr (kIsFp8<Cache>) {
      return {"latent attention over an fp8 cache was launched", 0};
    } else {
      return attend_mma<Cache, gpu::kLatentDim / 64, gpu::kLatentDimV / 64, true>(params, items, options);
    }
  }
  if (choice.width == 64) return attend_width<Cache, 8>(choice, params, items, options);
  if (choice.width == 128) return attend_width<Cache, 16>(choice, params, items, options);
  return attend_width<Cache, 32>(choice, params, items, options);
}
#endif

/// Both lists of a plan, then the merge.
simt::LaunchResult run_plan(const AttentionCase& c, const gpu::AttendPlan& plan, gpu::AttendChoice choice,
                            gpu::AttendParams attend, gpu::MergeParams merge, const simt::LaunchOptions& options) {
  attend.blocks = merge.blocks = plan.blocks.data();
  simt::LaunchResult result;
  for (const bool mma : {false, true}) {
    const auto& items = mma ? plan.mma_items : plan.core_items;
    if (items.empty() || !result.ok()) continue;
    choice.mma = mma;
    if (!mma && choice.latent) continue;
    attend.items = items.data();
    result = attend_on_simt(c.spec.cache, choice, attend, items.size(), options);
  }
  if (!result.ok()) return result;
  simt::Grid grid;
  grid.x = static_cast<int>(plan.blocks.size()) * plan.rows_per_block;
  grid.y = static_cast<int>(c.spec.kv_heads);
  grid.threads = 64;
  return simt::launch(
      grid, [&] { gpu::merge_block(merge); }, options);
}

}  // namespace

simt::LaunchResult attend_on_simt(DType cache, const gpu::AttendChoice& choice, const gpu::AttendParams& params,
                                  std::size_t items, const simt::LaunchOptions& options) {
#if defined(KVPOOL_PLANT_BUGS)  // one kernel of either kind is enough to plant bugs in
  if (cache != DType::bfloat16) return {"bugs are planted in the kernels of bf16 caches", 0};
  return choice.mma ? attend_mma<Bf16, 2, 2, false>(params, items, options)
                    : attend<Bf16, 16, 4>(params, items, options);
#else
  switch (cache) {
    case DType::float16: return attend_cache<Fp16>(choice, params, items, options);
    case DType::bfloat16: return attend_cache<Bf16>(choice, params, items, options);
    case DType::fp8_e4m3: return attend_cache<E4m3>(choice, params, items, options);
    case DType::fp8_e5m2: return attend_cache<E5m2>(choice, params, items, options);
    case DType::float32:
    case DType::uint8: break;
  }
  return {"no kernel for this cache type was to be launched", 0};
#endif
}

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

  gpu::AttendPlan plan;
  gpu::plan_attend(*step, run.target_blocks, plan);
  if (run.capacity.max_sequences > 0)
    gpu::pad_plan(plan, gpu::plan_limits(c.problem(), run.capacity, run.target_blocks));
  const auto partials = static_cast<std::size_t>(plan.num_slots * c.spec.kv_heads);
  std::vector<float> out(partials * static_cast<std::size_t>(c.dim_v), std::numeric_limits<float>::quiet_NaN());
  std::vector<float> lse(partials, std::numeric_limits<float>::quiet_NaN());
  gpu::AttendParams attend = gpu::attend_params(*step, args);
  attend.partials = {out.data(), lse.data()};
  gpu::MergeParams merge = gpu::merge_params(*step, args, plan.rows_per_block);
  merge.partials = attend.partials;
  const gpu::AttendChoice choice{false, gpu::is_latent(c.problem()), gpu::lanes_for(c.problem()) * 8,
                                 gpu::core_rows(*step)};
  const simt::LaunchResult result = run_plan(c, plan, choice, attend, merge, run.launch);
  if (!result.ok()) output.status = Status{ErrorCode::internal, result.error};
  return output;
}

void expect_future_nan_stays_behind(CaseSpec spec) {
  spec.seq_lens = {24};
  spec.q_lens = {24};
  AttentionCase c(spec);
  const auto row = static_cast<std::size_t>(row_offset(c.view.v, c.table[0], 10, 0)) * 2;
  c.v_pool[row] = c.v_pool[row + 1] = 0xFF;
  const Output got = run_on_simt(c);
  ASSERT_TRUE(got.status.ok());
  const auto width = static_cast<std::size_t>(spec.kv_heads * spec.group * c.dim_v);
  for (std::size_t t = 0; t < 24; ++t) EXPECT_EQ(std::isnan(got.at(t * width, DType::float32)), t >= 10) << t;
}

void expect_same_bits_on_every_schedule(const CaseSpec& spec) {
  const AttentionCase c(spec);
  const Output forward = run_on_simt(c);
  ASSERT_TRUE(forward.status.ok());
  std::vector<SimtRun> runs(4);
  runs[0].launch.schedule = simt::Schedule::reverse;
  runs[1].launch.schedule = simt::Schedule::random;
  runs[2].launch.early_copies = true;
  runs[3].launch.os_threads = 2;
  for (const SimtRun& run : runs) {
    const Output other = run_on_simt(c, run);
    ASSERT_TRUE(other.status.ok());
    EXPECT_EQ(forward.bytes, other.bytes);
    EXPECT_EQ(forward.lse, other.lse);
  }
}

}  // namespace kvpool::kernels::test
