// Joins partial results: the slots of a row block into its rows, and two dense parts into one.
#pragma once

#include "kernels/cuda/query_rows.cuh"

namespace kvpool::kernels::gpu {

/// Weight of a part with `lse` against the largest; an empty part weighs nothing, whatever stands in its row.
KVPOOL_DEVICE float part_weight(float lse, float top) {
  return lse == minus_infinity() ? 0.0F : fast_exp2((lse - top) * kLog2E);
}

KVPOOL_DEVICE void store_value(const TokenRows& rows, std::int64_t at, float value) {
  switch (rows.type) {
    case ValueType::fp16: static_cast<Fp16*>(rows.data)[at] = stored_form<Fp16>(value, 1.0F); return;
    case ValueType::bf16: static_cast<Bf16*>(rows.data)[at] = bf16_from_float(value); return;
    case ValueType::fp32: break;
  }
  static_cast<float*>(rows.data)[at] = value;
}

/// Row block_x() % rows_per_block of row block block_x() / rows_per_block, KV head block_y(). Slots are taken in order;
/// the sink joins the denominator here, once. Blocks without rows are the end of a list of fixed length.
KVPOOL_DEVICE void merge_block(const MergeParams& p) {
  const RowBlock block = p.blocks[block_x() / p.rows_per_block];
  const int row = block_x() % p.rows_per_block;
  if (row >= block.rows) return;
  const int head = block_y() * p.group + (block.first_row + row) % p.group;
  const std::int64_t token = block.first_token + (block.first_row + row) / p.group;
  const auto index = [&](int slot) { return first_partial(slot, p.num_kv_heads, block_y(), block.slot_rows) + row; };
  float top = minus_infinity();
  bool nan = false;
  for (int slot = block.first_slot; slot < block.end_slot; slot += block.slot_rows) {
    const float lse = p.partials.lse[index(slot)];
    top = lse > top ? lse : top;
    nan = nan || lse != lse;
  }
  const bool empty = top == minus_infinity() && !nan;
  const float shift = p.alibi != 0 ? alibi_shift(p.slopes[head], keys_of_row(p, block, row)) : 0.0F;
  const bool sink = p.sinks != 0 && !empty;
  const float sink_logit = sink ? p.sink_logits[head] - shift : minus_infinity();
  if (sink && sink_logit > top) top = sink_logit;
  float total = sink ? part_weight(sink_logit, top) : 0.0F;
  for (int slot = block.first_slot; slot < block.end_slot; slot += block.slot_rows)
    total += part_weight(p.partials.lse[index(slot)], top);
  const float factor = empty ? 0.0F : p.v_scale[block_y()] * fast_reciprocal(total);
  for (int d = thread_index(); d < p.dim_v; d += block_threads()) {
    float value = 0;
    for (int slot = block.first_slot; slot < block.end_slot; slot += block.slot_rows) {
      const float weight = part_weight(p.partials.lse[index(slot)], top);
      value += weight * p.partials.out[index(slot) * p.dim_v + d];
    }
    store_value(p.out, token * p.out.token_stride + head * p.out.head_stride + d, empty ? 0.0F : value * factor);
  }
  if (thread_index() == 0 && p.lse != nullptr) {
    p.lse[token * (static_cast<std::int64_t>(p.num_kv_heads) * p.group) + head] =
        empty ? minus_infinity() : top + log2f(total) * kLn2 + shift;
  }
}

/// Row block_x() of two dense fp32 parts.
KVPOOL_DEVICE void merge_pair_block(const MergePairParams& p) {
  const std::int64_t row = block_x();
  const float lse_a = p.lse_a[row];
  const float lse_b = p.lse_b[row];
  const float top = lse_b > lse_a || lse_a != lse_a ? lse_b : lse_a;
  const bool empty = lse_a == minus_infinity() && lse_b == minus_infinity();
  const float weight_a = empty ? 0.0F : part_weight(lse_a, top);
  const float weight_b = empty ? 0.0F : part_weight(lse_b, top);
  const float total = weight_a + weight_b;
  const float inverse = fast_reciprocal(total);
  for (int d = thread_index(); d < p.dim; d += block_threads()) {
    float value = 0;
    if (lse_a != minus_infinity()) value += weight_a * inverse * p.a[row * p.dim + d];
    if (lse_b != minus_infinity()) value += weight_b * inverse * p.b[row * p.dim + d];
    p.out[row * p.dim + d] = value;
  }
  block_barrier();  // lse may be lse_a
  if (thread_index() == 0) p.lse[row] = empty ? minus_infinity() : top + log2f(total) * kLn2;
}

}  // namespace kvpool::kernels::gpu
