#include "tools/gpu_check/decode_shape.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "kernels/cuda/attend_plan.hpp"
#include "kernels/cuda/launchers.hpp"
#include "kernels/dtype_dispatch.hpp"

namespace kvpool::gpu_check {

using namespace kernels;

namespace {

constexpr double kBeyondCache = 512e6;  // bytes

AttentionPlan plan_or_exit(const AttentionProblem& problem, const std::vector<std::int32_t>& seq_lens) {
  ExecOptions exec;
  exec.backend = Backend::cuda;
  auto plan = AttentionPlan::make(problem, seq_lens, {}, exec);
  if (!plan) {
    std::printf("%s\n", plan.error().message.c_str());
    std::_Exit(1);
  }
  return std::move(*plan);
}

void must_run(const Status& status) {
  if (status) return;
  std::printf("%s\n", status.error().message.c_str());
  std::_Exit(1);
}

AttentionProblem problem_of(const DecodeShape& s) {
  AttentionProblem p;
  p.num_query_heads = s.kv_heads * s.group;
  p.num_kv_heads = s.kv_heads;
  p.head_dim = p.head_dim_v = s.dim;
  p.page_size = s.page_size;
  return p;
}

std::int64_t pages_of(const DecodeShape& s) {
  std::int64_t pages = 0;
  for (const std::int32_t len : s.seq_lens) pages += (len + s.page_size - 1) / s.page_size;
  return pages;
}

}  // namespace

std::int64_t DecodeShape::tokens() const { return std::accumulate(seq_lens.begin(), seq_lens.end(), std::int64_t{0}); }

double DecodeShape::kv_bytes() const {
  return 2.0 * static_cast<double>(tokens() * kv_heads * dim * element_bytes(cache));
}

DecodeShape uniform(std::string name, int sequences, int len) {
  DecodeShape shape;
  shape.name = std::move(name);
  shape.seq_lens.assign(static_cast<std::size_t>(sequences), len);
  return shape;
}

DecodeBench::DecodeBench(const DecodeShape& shape)
    : shape_(shape),
      columns_((*std::max_element(shape.seq_lens.begin(), shape.seq_lens.end()) + shape.page_size - 1) /
               shape.page_size),
      turns_(1 + static_cast<int>(kBeyondCache / shape.kv_bytes())),
      pages_(pages_of(shape) * turns_),
      plan_(plan_or_exit(problem_of(shape), shape.seq_lens)) {
  const std::int64_t page_bytes = shape.page_size * shape.kv_heads * shape.dim * element_bytes(shape.cache);
  k_ = DeviceBytes(static_cast<std::size_t>(pages_ * page_bytes));
  v_ = DeviceBytes(k_.size());
  const auto fill = is_fp8(shape.cache) ? launch_fill_bytes : launch_fill;
  fill(k_.as(), k_.size(), 1, nullptr);
  fill(v_.as(), v_.size(), 2, nullptr);
  const auto rows = static_cast<std::int64_t>(shape.seq_lens.size()) * shape.kv_heads * shape.group * shape.dim;
  q_ = DeviceBytes(static_cast<std::size_t>(rows * 2));
  out_ = DeviceBytes(q_.size());
  launch_fill(q_.as(), q_.size(), 3, nullptr);
  std::vector<std::int32_t> order(static_cast<std::size_t>(pages_));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  std::vector<std::int32_t> tables(static_cast<std::size_t>(turns_) * shape.seq_lens.size() *
                                   static_cast<std::size_t>(columns_));
  std::size_t next = 0;
  for (std::size_t row = 0; row < static_cast<std::size_t>(turns_) * shape.seq_lens.size(); ++row) {
    const std::int64_t used = (shape.seq_lens[row % shape.seq_lens.size()] + shape.page_size - 1) / shape.page_size;
    for (std::int64_t i = 0; i < used; ++i)
      tables[row * static_cast<std::size_t>(columns_) + static_cast<std::size_t>(i)] = order[next++];
  }
  tables_ = DeviceBytes(tables.data(), tables.size() * sizeof(std::int32_t));
}

AttentionProblem DecodeBench::problem() const { return problem_of(shape_); }

AttentionArgs DecodeBench::args(int turn) const {
  AttentionArgs a;
  const KvShape shape{shape_.cache, pages_, shape_.page_size, shape_.kv_heads, shape_.dim, shape_.dim};
  a.kv = contiguous_kv_view(shape, shape_.layout, k_.as(), v_.as());
  const auto set = static_cast<std::size_t>(turn % turns_) * shape_.seq_lens.size() *
                   static_cast<std::size_t>(columns_) * sizeof(std::int32_t);
  a.table = {tables_.as<std::int32_t>(set), columns_, columns_};
  const std::int64_t heads = shape_.kv_heads * shape_.group;
  a.q = dense_queries(q_.as(), DType::bfloat16, heads, shape_.dim);
  a.out = dense_output(out_.as(), DType::bfloat16, heads, shape_.dim);
  return a;
}

void DecodeBench::run_once(int turn) { must_run(plan_.run(args(turn))); }

Timing DecodeBench::time(int repeats) {
  return time_on_device(
      nullptr, [&](int turn) { run_once(turn); }, repeats);
}

Timing DecodeBench::time_merge() {
  ExecOptions exec;
  exec.backend = Backend::cuda;
  const auto step = check_problem(problem(), shape_.seq_lens, {}, exec);
  int processors = 1;
  must(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  gpu::AttendPlan plan;
  gpu::plan_attend(*step, processors * 2, plan);
  const DeviceBytes blocks(plan.blocks.data(), plan.blocks.size() * sizeof(gpu::RowBlock));
  const auto partials = static_cast<std::size_t>(plan.num_slots * shape_.kv_heads);
  const DeviceBytes out(partials * static_cast<std::size_t>(shape_.dim) * sizeof(float));
  const DeviceBytes lse(partials * sizeof(float));
  must(cudaMemset(out.as(), 0, out.size()), "cudaMemset");
  must(cudaMemset(lse.as(), 0, lse.size()), "cudaMemset");
  gpu::MergeParams params = gpu::merge_params(*step, args(0), plan.rows_per_block);
  params.blocks = blocks.as<gpu::RowBlock>();
  params.partials = {out.as<float>(), lse.as<float>()};
  return time_on_device(nullptr, [&](int) {
    must(gpu::launch_merge(params, static_cast<int>(plan.blocks.size()), nullptr), "the merge");
  });
}

}  // namespace kvpool::gpu_check
