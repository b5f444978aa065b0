// Attention of new tokens over a paged KV cache: decode, chunked prefill and mixtures, one contract for all backends.
//
//     auto plan = AttentionPlan::make(problem, seq_lens, cu_q, exec);   // once per step
//     for each layer: append(...); plan->run(args);
//
// Query i of sequence b stands at position p = len[b] - q_len[b] + i, where len counts all tokens in the cache, the
// current ones included. It sees the keys max(0, p - window + 1) .. p (from 0 without a window). For a key:
//     s = scale * (q . k);  s = cap * tanh(s / cap);  s += slope[head] * (j - p);  softmax over s
// All arithmetic accumulates in fp32 (the reference in double). A sequence of length 0 and a query without keys give
// O = 0 and LSE = -infinity. Page-table entries past the end, and rows that no token owns, are never read.
//
// A prefix that all sequences share is read once in two levels. One plan that is not causal: one sequence, the prefix
// (whole pages), with the queries of all; one plan for what each sequence has behind it, its table starting there; then
// merge_attention() of the two results, both fp32 with LSE. Sinks go to one of the two.
//
// Determinism. The same call gives the same bits, whatever the number of threads, the layout and the order of pages.
// With a fixed split size the bits of a (token, query head) depend on nothing but its own query, keys and values:
// not on the rest of the batch, on other heads, nor on how the prompt was cut into chunks (same backend and tier).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "kvpool/kernels/backend.hpp"
#include "kvpool/kernels/paged_kv_view.hpp"

namespace kvpool::kernels {

/// What one step computes, without its data: everything a plan depends on.
struct AttentionProblem {
  std::int64_t num_query_heads = 0;  ///< of this rank; a multiple of num_kv_heads
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t head_dim_v = 0;
  std::int64_t page_size = 16;
  std::int64_t sliding_window = 0;  ///< keys a query sees, its own included; 0: all
  /// Keys per partial result. 0: chosen for speed from the whole batch. Above 0: cut at multiples of it, and results do
  /// not depend on the batch.
  std::int64_t fixed_split = 0;
  /// false: every query sees all keys of its sequence, of which there may be fewer than queries; no window, no ALiBi.
  bool causal = true;
};

/// Rows of queries or results: element (token, head, i) at data + token * token_stride + head * head_stride + i.
struct QueryRows {
  const void* data = nullptr;
  DType dtype = DType::float32;   ///< float32, float16 or bfloat16
  std::int64_t token_stride = 0;  ///< elements
  std::int64_t head_stride = 0;   ///< elements
};
struct OutputRows {
  void* data = nullptr;
  DType dtype = DType::float32;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

/// Rows that lie densely as [token][head][dim].
[[nodiscard]] QueryRows dense_queries(const void* data, DType dtype, std::int64_t heads, std::int64_t dim) noexcept;
[[nodiscard]] OutputRows dense_output(void* data, DType dtype, std::int64_t heads, std::int64_t dim) noexcept;

/// Changes to the logits. Spans are host memory of num_query_heads entries, or empty.
struct LogitRules {
  std::optional<float> scale;           ///< default 1 / sqrt(head_dim)
  float soft_cap = 0;                   ///< 0: none
  std::span<const float> alibi_slopes;  ///< per query head
  std::span<const float> sinks;         ///< per query head: a logit that enters the denominator (and LSE) only
};

/// The data of one layer.
struct AttentionArgs {
  PagedKvView kv;
  KvScales scales;
  PageTable table;       ///< memory of the backend
  QueryRows q;           ///< [T][Hq][head_dim]
  OutputRows out;        ///< [T][Hq][head_dim_v]
  float* lse = nullptr;  ///< [T][Hq] natural logarithm of the softmax denominator, or nullptr
  LogitRules rules;
};

/// What later steps of a plan will not exceed.
struct PlanCapacity {
  std::int64_t max_sequences = 0;
  std::int64_t max_tokens = 0;  ///< query tokens of a step
  std::int64_t max_len = 0;     ///< tokens of a sequence
};

/// Where the work of one step is cut. Made on the host once per step and reused for all layers of one shape.
/// Movable. One run at a time per plan (it owns the workspace); different plans may run at the same time.
class AttentionPlan {
 public:
  /// seq_lens [B] >= 0 and cu_q [B + 1] are host memory and copied; query tokens of b are cu_q[b] .. cu_q[b + 1), at
  /// most len[b] of them (a sequence of length 0 may have queries: padding). An empty cu_q means one query a sequence:
  /// decode. Errors, before any work: invalid_argument (shapes, lengths, negative options), unsupported (backend or
  /// tier not available, head size without a kernel), environment (no device). O(B + pieces of work).
  [[nodiscard]] static Result<AttentionPlan> make(const AttentionProblem& problem,
                                                  std::span<const std::int32_t> seq_lens,
                                                  std::span<const std::int32_t> cu_q, const ExecOptions& exec = {});

  /// A plan without work whose arrays hold every step within `capacity`: with cuda, replan() changes neither their
  /// addresses nor the shape of a launch, so that a graph captured from run() computes the new step when it is
  /// replayed. Capture with a step that has queries, and with a page table whose columns hold max_len tokens. Errors:
  /// as make(), and invalid_argument for a capacity below 1.
  [[nodiscard]] static Result<AttentionPlan> reserve(const AttentionProblem& problem, const PlanCapacity& capacity,
                                                     const ExecOptions& exec = {});

  /// Takes another step; the arguments are those of make(). invalid_argument, and nothing changed, when the step
  /// exceeds the capacity of reserve(). cuda: the upload is queued on the stream. O(B + pieces of work).
  [[nodiscard]] Status replan(std::span<const std::int32_t> seq_lens, std::span<const std::int32_t> cu_q);

  /// Computes one layer. Refuses arguments that do not fit the plan or have no kernel, before any work; then `out` and
  /// `lse` are untouched. cpu and reference: blocking, done on return. cuda: queued on the stream of the plan; the
  /// caller's current device is unchanged.
  [[nodiscard]] Status run(const AttentionArgs& args);

  [[nodiscard]] const AttentionProblem& problem() const noexcept;
  [[nodiscard]] const ExecOptions& exec() const noexcept;
  [[nodiscard]] std::int64_t num_sequences() const noexcept;
  [[nodiscard]] std::int64_t num_tokens() const noexcept;
  /// Pieces handed to threads or thread blocks, and the partial results they leave to be merged.
  [[nodiscard]] std::int64_t num_work_items() const noexcept;
  [[nodiscard]] std::int64_t num_partials() const noexcept;
  /// The CPU tier in use; empty for other backends.
  [[nodiscard]] std::optional<CpuTier> tier() const noexcept;

  class Impl;
  explicit AttentionPlan(std::unique_ptr<Impl> impl, const PlanCapacity& capacity = {}) noexcept;
  AttentionPlan(AttentionPlan&&) noexcept;
  AttentionPlan& operator=(AttentionPlan&&) noexcept;
  ~AttentionPlan();

 private:
  std::unique_ptr<Impl> impl_;
  PlanCapacity capacity_;  ///< zeros: none was given
};

/// make() and run() in one call, for a single layer.
[[nodiscard]] Status paged_attention(const AttentionProblem& problem, std::span<const std::int32_t> seq_lens,
                                     std::span<const std::int32_t> cu_q, const AttentionArgs& args,
                                     const ExecOptions& exec = {});

/// Attention over two disjoint sets of keys, joined: (a, lse_a) and (b, lse_b) become (out, lse). All fp32, `rows` rows
/// of `dim` elements, dense; out may be a, lse may be lse_a. Two empty parts give O = 0, LSE = -infinity.
/// Host memory for reference and cpu, device memory for cuda.
[[nodiscard]] Status merge_attention(const float* a, const float* lse_a, const float* b, const float* lse_b, float* out,
                                     float* lse, std::int64_t rows, std::int64_t dim, const ExecOptions& exec = {});

}  // namespace kvpool::kernels
