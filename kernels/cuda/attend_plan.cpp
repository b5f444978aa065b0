#include "kernels/cuda/attend_plan.hpp"

#include <algorithm>
#include <string>

#include "kernels/dtype_dispatch.hpp"

namespace kvpool::kernels::gpu {
namespace {

/// Shorter ranges would spend more on merging than they win.
constexpr std::int64_t kShortestSplit = 256;

ValueType value_type(DType type) {
  if (type == DType::float16) return ValueType::fp16;
  return type == DType::bfloat16 ? ValueType::bf16 : ValueType::fp32;
}

Rows rows_of(const PagedRows& rows) { return {rows.data, rows.page_stride, rows.token_stride, rows.head_stride}; }

TokenRows tokens_of(const QueryRows& rows) {
  return {const_cast<void*>(rows.data), value_type(rows.dtype), rows.token_stride, rows.head_stride};
}

/// First and one past the last key that the queries [query, query + count) of b see.
std::pair<std::int64_t, std::int64_t> key_range(const StepInput& step, std::int64_t b, std::int64_t query,
                                                std::int64_t count) {
  if (step.len(b) == 0) return {0, 0};
  return {step.first_key(step.position(b, query)), step.position(b, query + count - 1) + 1};
}

std::int64_t block_rows(const StepInput& step, std::int64_t b) {
  return kernel_for(step, b) == AttendKernel::mma ? kMmaRows : core_rows(step);
}

std::int64_t chosen_split(const StepInput& step, std::int64_t target_blocks) {
  if (step.problem.fixed_split > 0) return step.problem.fixed_split;
  std::int64_t keys = 0;  // over all row blocks
  for (std::int64_t b = 0; b < step.num_sequences(); ++b) {
    const std::int64_t height = block_rows(step, b);
    keys += (step.q_len(b) * step.group() + height - 1) / height * step.len(b);
  }
  const std::int64_t per_block = keys * step.problem.num_kv_heads / std::max<std::int64_t>(1, target_blocks);
  return std::max(kShortestSplit, (per_block + 63) / 64 * 64);
}

/// Rows [first, first + count) of sequence b: a block, and its ranges of keys.
void add_block(const StepInput& step, std::int64_t b, std::int64_t first, std::int64_t count, std::int64_t height,
               AttendPlan& plan) {
  const std::int64_t query = first / step.group();
  const std::int64_t queries = (first + count - 1) / step.group() - query + 1;
  const auto [lo, hi] = key_range(step, b, query, queries);
  auto& items = height == kMmaRows ? plan.mma_items : plan.core_items;
  const auto number = static_cast<std::int32_t>(plan.blocks.size());
  RowBlock block{};
  block.sequence = static_cast<std::int32_t>(b);
  block.first_token = static_cast<std::int32_t>(step.first_token(b));
  block.first_row = static_cast<std::int32_t>(first);
  block.rows = static_cast<std::int32_t>(count);
  block.position = static_cast<std::int32_t>(step.position(b, 0));
  block.len = static_cast<std::int32_t>(step.len(b));
  block.slot_rows = static_cast<std::int32_t>(height);
  block.first_slot = static_cast<std::int32_t>(plan.num_slots);
  for (std::int64_t begin = lo / plan.split_size * plan.split_size; begin < hi; begin += plan.split_size) {
    items.push_back({number, static_cast<std::int32_t>(begin),
                     static_cast<std::int32_t>(std::min(begin + plan.split_size, hi)),
                     static_cast<std::int32_t>(plan.num_slots)});
    plan.num_slots += height;
  }
  block.end_slot = static_cast<std::int32_t>(plan.num_slots);
  plan.blocks.push_back(block);
  plan.rows_per_block = std::max(plan.rows_per_block, static_cast<int>(height));
}

Status check_rows(const PagedRows& rows, DType type, const char* name) {
  const auto address = reinterpret_cast<std::uintptr_t>(rows.data);
  const std::int64_t bytes = 8 * element_bytes(type);
  const bool aligned = address % static_cast<std::uintptr_t>(bytes) == 0 && rows.page_stride % 8 == 0 &&
                       rows.token_stride % 8 == 0 && rows.head_stride % 8 == 0;
  if (aligned) return {};
  return {ErrorCode::unsupported, std::string("cuda: the rows of ") + name +
                                      " are not aligned to 8 elements (strides " + std::to_string(rows.page_stride) +
                                      ", " + std::to_string(rows.token_stride) + ", " +
                                      std::to_string(rows.head_stride) + ")"};
}

Status check_latent(const AttentionArgs& args) {
  const PagedRows& k = args.kv.k;
  const PagedRows& v = args.kv.v;
  if (is_fp8(args.kv.dtype)) return {ErrorCode::unsupported, "cuda: no latent attention over an fp8 cache"};
  if (args.q.dtype != args.kv.dtype) {
    return {ErrorCode::unsupported, "cuda: latent attention takes queries of the cache's type, " +
                                        std::string(to_string(args.kv.dtype)) + ", not " +
                                        std::string(to_string(args.q.dtype))};
  }
  if (k.data != v.data || k.page_stride != v.page_stride || k.token_stride != v.token_stride ||
      k.head_stride != v.head_stride) {
    return {ErrorCode::unsupported, "cuda: latent attention needs V to be the first part of the K rows"};
  }
  return {};
}

void fill_head_lists(const StepInput& step, std::span<const float> list, float* target) {
  for (std::int64_t h = 0; h < step.problem.num_query_heads; ++h)
    target[h] = list.empty() ? 0.0F : list[static_cast<std::size_t>(h)];
}

}  // namespace

int core_rows(const StepInput& step) noexcept { return step.group() == 1 ? 1 : 4; }

AttendKernel kernel_for(const StepInput& step, std::int64_t sequence) noexcept {
  const bool small = step.q_len(sequence) * step.group() <= core_rows(step) && !is_latent(step.problem);
  return small ? AttendKernel::cores : AttendKernel::mma;
}

void plan_attend(const StepInput& step, std::int64_t target_blocks, AttendPlan& plan) {
  plan.blocks.clear();
  plan.core_items.clear();
  plan.mma_items.clear();
  plan.num_slots = 0;
  plan.rows_per_block = 1;
  plan.split_size = chosen_split(step, target_blocks);
  for (std::int64_t b = 0; b < step.num_sequences(); ++b) {
    const std::int64_t rows = step.q_len(b) * step.group();
    const std::int64_t height = block_rows(step, b);
    for (std::int64_t first = 0; first < rows; first += height)
      add_block(step, b, first, std::min(height, rows - first), height, plan);
  }
}

PlanLimits plan_limits(const AttentionProblem& problem, const PlanCapacity& capacity,
                       std::int64_t target_blocks) noexcept {
  const std::int64_t rows = capacity.max_tokens * (problem.num_query_heads / problem.num_kv_heads);
  PlanLimits limits;
  limits.blocks = std::min(capacity.max_tokens, capacity.max_sequences) + rows / kMmaRows;
  const std::int64_t whole = capacity.max_len + 1;
  if (problem.fixed_split > 0) {
    limits.items = limits.blocks * (whole / problem.fixed_split + 2);
  } else {  // each block has at most one short range beside those that fill the device
    const std::int64_t shortest = limits.blocks * (whole / kShortestSplit + 2);
    limits.items = std::min(shortest, target_blocks / problem.num_kv_heads + 1 + 2 * limits.blocks);
  }
  limits.slots = limits.items * kMmaRows;
  return limits;
}

void pad_plan(AttendPlan& plan, const PlanLimits& limits) {
  plan.blocks.resize(static_cast<std::size_t>(limits.blocks), RowBlock{});
  plan.core_items.resize(static_cast<std::size_t>(limits.items), WorkItem{-1, 0, 0, 0});
  plan.mma_items.resize(static_cast<std::size_t>(limits.items), WorkItem{-1, 0, 0, 0});
  plan.rows_per_block = kMmaRows;
}

bool is_latent(const AttentionProblem& problem) noexcept {
  return problem.head_dim == kLatentDim && problem.head_dim_v == kLatentDimV;
}

int lanes_for(const AttentionProblem& problem) noexcept {
  const std::int64_t dim = std::max(problem.head_dim, problem.head_dim_v);
  if (dim <= 64) return 8;
  return dim <= 128 ? 16 : 32;
}

Status check_device_problem(const AttentionProblem& p) {
  for (const std::int64_t dim : {p.head_dim, p.head_dim_v}) {
    if ((dim % 8 != 0 || dim > 256) && !is_latent(p)) {
      return {ErrorCode::unsupported, "cuda: no kernel for head size " + std::to_string(dim) +
                                          "; it must be a multiple of 8 and at most 256, or 576 for keys and 512 for "
                                          "values"};
    }
  }
  if (p.num_kv_heads > kMaxKvHeads || p.num_query_heads > kMaxQueryHeads) {
    return {ErrorCode::unsupported, "cuda: at most " + std::to_string(kMaxKvHeads) + " KV heads and " +
                                        std::to_string(kMaxQueryHeads) + " query heads on a rank, not " +
                                        std::to_string(p.num_kv_heads) + " and " + std::to_string(p.num_query_heads)};
  }
  return {};
}

Status check_device_args(const AttentionArgs& args) {
  if (args.kv.dtype == DType::float32 || args.kv.dtype == DType::uint8) {
    return {ErrorCode::unsupported, "cuda: no kernel for a " + std::string(to_string(args.kv.dtype)) + " cache"};
  }
  if (args.kv.head_dim == kLatentDim) {
    if (Status status = check_latent(args); !status) return status;
  }
  if (Status status = check_rows(args.kv.k, args.kv.dtype, "K"); !status) return status;
  return check_rows(args.kv.v, args.kv.dtype, "V");
}

AttendParams attend_params(const StepInput& step, const AttentionArgs& args) {
  AttendParams p{};
  p.k = rows_of(args.kv.k);
  p.v = rows_of(args.kv.v);
  p.table = args.table.entries;
  p.table_stride = args.table.row_stride;
  p.q = tokens_of(args.q);
  p.page_size = static_cast<std::int32_t>(args.kv.page_size);
  p.dim = static_cast<std::int32_t>(args.kv.head_dim);
  p.dim_v = static_cast<std::int32_t>(args.kv.head_dim_v);
  p.group = static_cast<std::int32_t>(step.group());
  p.num_kv_heads = static_cast<std::int32_t>(args.kv.num_kv_heads);
  p.window = static_cast<std::int32_t>(step.problem.sliding_window);
  p.query_step = step.problem.causal ? 1 : 0;
  p.scale = logit_scale(args);
  p.soft_cap = args.rules.soft_cap;
  p.inverse_soft_cap = p.soft_cap > 0 ? 1.0F / p.soft_cap : 0.0F;
  p.alibi = args.rules.alibi_slopes.empty() ? 0 : 1;
  for (std::int64_t h = 0; h < args.kv.num_kv_heads; ++h) p.k_scale[h] = head_scales(args.scales, args.kv, h).k;
  fill_head_lists(step, args.rules.alibi_slopes, p.slopes);
  return p;
}

MergeParams merge_params(const StepInput& step, const AttentionArgs& args, int rows_per_block) {
  MergeParams p{};
  p.out = {args.out.data, value_type(args.out.dtype), args.out.token_stride, args.out.head_stride};
  p.lse = args.lse;
  p.dim_v = static_cast<std::int32_t>(args.kv.head_dim_v);
  p.group = static_cast<std::int32_t>(step.group());
  p.num_kv_heads = static_cast<std::int32_t>(args.kv.num_kv_heads);
  p.rows_per_block = rows_per_block;
  p.window = static_cast<std::int32_t>(step.problem.sliding_window);
  p.query_step = step.problem.causal ? 1 : 0;
  p.sinks = args.rules.sinks.empty() ? 0 : 1;
  p.alibi = args.rules.alibi_slopes.empty() ? 0 : 1;
  for (std::int64_t h = 0; h < args.kv.num_kv_heads; ++h) p.v_scale[h] = head_scales(args.scales, args.kv, h).v;
  fill_head_lists(step, args.rules.sinks, p.sink_logits);
  fill_head_lists(step, args.rules.alibi_slopes, p.slopes);
  return p;
}

AppendParams append_params(const PagedKvView& kv, const KvScales& scales, const NewRows& rows,
                           const std::int64_t* slots) {
  AppendParams p{};
  p.k = rows_of(kv.k);
  p.v = rows_of(kv.v);
  p.new_k = tokens_of(rows.k);
  p.new_v = tokens_of(rows.v);
  p.slots = slots;
  p.num_slots = kv.num_pages * kv.page_size;
  p.page_size = static_cast<std::int32_t>(kv.page_size);
  p.num_kv_heads = static_cast<std::int32_t>(kv.num_kv_heads);
  p.dim = static_cast<std::int32_t>(kv.head_dim);
  p.dim_v = static_cast<std::int32_t>(kv.head_dim_v);
  for (std::int64_t h = 0; h < kv.num_kv_heads; ++h) {
    const HeadScales scale = head_scales(scales, kv, h);
    p.k_scale[h] = scale.k;
    p.v_scale[h] = scale.v;
  }
  return p;
}

}  // namespace kvpool::kernels::gpu
