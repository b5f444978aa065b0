// What the host hands to the kernels: plain structs of 64-bit strides and pointers into device memory.
#pragma once

#include <cstdint>

#include "kernels/number_formats.hpp"

namespace kvpool::kernels::gpu {

/// Limits of the arrays that travel with a launch.
inline constexpr int kMaxKvHeads = 64;
inline constexpr int kMaxQueryHeads = 256;
inline constexpr int kThreads = 128;
inline constexpr int kStages = 3;
/// Thread blocks a multiprocessor shall have registers for; left alone, the compiler aims at more and spills for it.
inline constexpr int kResidentBlocks = 3;

enum class ValueType : int { fp32, fp16, bf16 };

struct Rows {
  const void* data;
  std::int64_t page_stride;
  std::int64_t token_stride;
  std::int64_t head_stride;
};

struct TokenRows {
  void* data;
  ValueType type;
  std::int64_t token_stride;
  std::int64_t head_stride;
};

/// Rows of a row block for tensor cores: the height of their tiles.
inline constexpr int kMmaRows = 16;
/// Head sizes of latent attention: the values are the first part of the key rows.
inline constexpr int kLatentDim = 576;
inline constexpr int kLatentDimV = 512;

/// Up to `slot_rows` consecutive rows of one sequence; row r is query r / group, head r % group of a KV head's group.
struct RowBlock {
  std::int32_t sequence;
  std::int32_t first_token;  ///< of the sequence in the batch
  std::int32_t first_row;
  std::int32_t rows;
  std::int32_t position;    ///< of the sequence's query 0; meaningless when `len` is 0
  std::int32_t len;         ///< tokens of the sequence
  std::int32_t slot_rows;   ///< 1, 4 or kMmaRows
  std::int32_t first_slot;  ///< partial results of this block: first_slot, first_slot + slot_rows .. below end_slot
  std::int32_t end_slot;
};

/// One thread block's work: keys [begin, end) of a row block, result to `slot`.
struct WorkItem {
  std::int32_t block;  ///< below 0: no work, the end of a list of fixed length
  std::int32_t begin;
  std::int32_t end;
  std::int32_t slot;
};

/// Partial results: row r of a slot and KV head at index first_partial() + r.
struct Partials {
  float* out;  ///< [..][dim_v], normalised within the slot's keys
  float* lse;  ///< [..], natural logarithm
};

/// Slots are counted in rows, so that blocks of different heights can stand in one list.
KVPOOL_HOST_DEVICE constexpr std::int64_t first_partial(int slot, int num_kv_heads, int head, int slot_rows) noexcept {
  return static_cast<std::int64_t>(slot) * num_kv_heads + static_cast<std::int64_t>(head) * slot_rows;
}

struct AttendParams {
  Rows k;
  Rows v;
  const std::int32_t* table;
  std::int64_t table_stride;
  TokenRows q;
  const WorkItem* items;
  const RowBlock* blocks;
  Partials partials;
  std::int32_t page_size;
  std::int32_t dim;
  std::int32_t dim_v;
  std::int32_t group;
  std::int32_t num_kv_heads;
  std::int32_t window;      ///< 0: none
  std::int32_t query_step;  ///< from one query's position to the next: 1, or 0 when all see the same keys
  float scale;
  float soft_cap;
  float inverse_soft_cap;
  std::int32_t alibi;
  float k_scale[kMaxKvHeads];
  float slopes[kMaxQueryHeads];
};

struct MergeParams {
  const RowBlock* blocks;
  Partials partials;
  TokenRows out;
  float* lse;  ///< [tokens][query heads] or nullptr
  std::int32_t dim_v;
  std::int32_t group;
  std::int32_t num_kv_heads;
  std::int32_t rows_per_block;  ///< the largest slot_rows: rows of the grid per block
  std::int32_t window;          ///< as in AttendParams
  std::int32_t query_step;      ///< as in AttendParams
  std::int32_t sinks;
  std::int32_t alibi;
  float v_scale[kMaxKvHeads];
  float sink_logits[kMaxQueryHeads];
  float slopes[kMaxQueryHeads];
};

struct AppendParams {
  Rows k;  ///< written
  Rows v;
  TokenRows new_k;
  TokenRows new_v;
  const std::int64_t* slots;
  std::int64_t num_slots;
  std::int32_t page_size;
  std::int32_t num_kv_heads;
  std::int32_t dim;
  std::int32_t dim_v;
  float k_scale[kMaxKvHeads];
  float v_scale[kMaxKvHeads];
};

/// Rows of one side of a page copy in units of sizeof(Unit).
struct CopySide {
  void* data;
  std::int64_t page_stride;
  std::int64_t token_stride;
  std::int64_t head_stride;
};
struct CopyJob {
  CopySide from;
  CopySide to;
  std::int32_t page_size;
  std::int32_t num_heads;
  std::int32_t row_units;
};
struct CopyPair {
  std::int64_t source;
  std::int64_t target;
};
struct CopyParams {
  const CopyJob* jobs;    ///< one per layer and per K or V: block_y
  const CopyPair* pairs;  ///< block_x
};

/// Public merge of two parts, dense fp32.
struct MergePairParams {
  const float* a;
  const float* lse_a;
  const float* b;
  const float* lse_b;
  float* out;
  float* lse;
  std::int32_t dim;
};

}  // namespace kvpool::kernels::gpu
