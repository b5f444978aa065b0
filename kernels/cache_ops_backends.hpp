// The cache operations per kind of memory; arguments have been checked by cache_ops.cpp.
#pragma once

#include <cstdint>
#include <span>

#include "kvpool/kernels/cache_ops.hpp"

namespace kvpool::kernels {

struct TierKernels;

/// `kernels` casts rows to fp8; nullptr: element by element, as the formats define it.
[[nodiscard]] std::int64_t host_append(const PagedKvView& kv, const KvScales& scales, const NewRows& rows,
                                       const std::int64_t* slots, std::int64_t num_tokens, int max_threads,
                                       const TierKernels* kernels);
/// from[i] and to[i] may be the same view.
void host_copy_pages(std::span<const PagedKvView> from, std::span<const PagedKvView> to,
                     std::span<const PagePair> pairs, int max_threads);
void host_gather(const PagedKvView& kv, std::span<const std::int32_t> pages, std::int64_t len, void* k_out,
                 void* v_out);

[[nodiscard]] Result<std::int64_t> cuda_append(const PagedKvView& kv, const KvScales& scales, const NewRows& rows,
                                               const std::int64_t* slots, std::int64_t num_tokens,
                                               const ExecOptions& exec);
[[nodiscard]] Status cuda_copy_pages(std::span<const PagedKvView> from, std::span<const PagedKvView> to,
                                     std::span<const PagePair> pairs, const ExecOptions& exec);
[[nodiscard]] Status cuda_gather(const PagedKvView& kv, std::span<const std::int32_t> pages, std::int64_t len,
                                 void* k_out, void* v_out, const ExecOptions& exec);
[[nodiscard]] Status cuda_merge(const float* a, const float* lse_a, const float* b, const float* lse_b, float* out,
                                float* lse, std::int64_t rows, std::int64_t dim, const ExecOptions& exec);

}  // namespace kvpool::kernels
