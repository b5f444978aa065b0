// Rows of one row block: which queries and heads they are, and the keys that each of them sees.
#pragma once

#include "kernels/cuda/face.cuh"
#include "kernels/cuda/params.hpp"

namespace kvpool::kernels::gpu {

inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr float kLn2 = 0.6931471805599453F;

KVPOOL_DEVICE float minus_infinity() { return bit_cast_to<float>(0xFF800000U); }

KVPOOL_DEVICE float load_value(const TokenRows& rows, std::int64_t at) {
  switch (rows.type) {
    case ValueType::fp16: return to_float(static_cast<const Fp16*>(rows.data)[at]);
    case ValueType::bf16: return to_float(static_cast<const Bf16*>(rows.data)[at]);
    case ValueType::fp32: break;
  }
  return static_cast<const float*>(rows.data)[at];
}

/// Keys [lo, hi) that a row sees; none for rows past the block's last and in an empty sequence.
struct KeyRange {
  int lo;
  int hi;
};
template <class Params>
KVPOOL_DEVICE KeyRange keys_of_row(const Params& p, const RowBlock& block, int row) {
  if (row >= block.rows || block.len == 0) return {0, 0};
  const int position = block.position + (block.first_row + row) / p.group * p.query_step;
  return {p.window > 0 && position >= p.window ? position - p.window + 1 : 0, position + 1};
}

template <class Params>
KVPOOL_DEVICE int query_head_of_row(const Params& p, const RowBlock& block, int kv_head, int row) {
  return kv_head * p.group + (block.first_row + row) % p.group;
}

/// Where a row's query starts. Precondition: row < block.rows.
KVPOOL_DEVICE std::int64_t query_offset(const AttendParams& p, const RowBlock& block, int kv_head, int row) {
  return (block.first_token + (block.first_row + row) / p.group) * p.q.token_stride +
         query_head_of_row(p, block, kv_head, row) * p.q.head_stride;
}

/// ALiBi counts keys from the one it favours, so that those that matter get small numbers: the rounding of a large one
/// would be an error of the weights. alibi_shift() is what the logits of a row then lack.
KVPOOL_DEVICE int alibi_origin(float slope, const KeyRange& seen) { return slope < 0 ? seen.lo : seen.hi - 1; }
KVPOOL_DEVICE float alibi_shift(float slope, const KeyRange& seen) {
  return slope < 0 ? slope * static_cast<float>(seen.lo - (seen.hi - 1)) : 0.0F;
}

/// The logit of a key that the row sees, in units of log2. `scale` holds all factors of q . k.
KVPOOL_DEVICE float log2_logit(const AttendParams& p, float dot, float scale, int query_head, int key,
                               const KeyRange& seen) {
  float x = dot * scale;
  if (p.soft_cap > 0) x = p.soft_cap * tanhf(x * p.inverse_soft_cap);
  if (p.alibi != 0) {
    const float slope = p.slopes[query_head];
    x += slope * static_cast<float>(key - alibi_origin(slope, seen));
  }
  return x * kLog2E;
}

}  // namespace kvpool::kernels::gpu
