#include "kvpool/kernels/cache_ops.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cache_ops_backends.hpp"
#include "kernels/cpu/row_task.hpp"
#include "kernels/dtype_dispatch.hpp"

namespace kvpool::kernels {
namespace {

Error refusal(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

int threads_of(const ExecOptions& exec) { return exec.backend == Backend::reference ? 1 : exec.max_threads; }

/// Rows of elements of one type: the fp8 rows of latent attention have their own writers.
Status check_rows(const PagedKvView& kv) {
  if (is_cache_type(kv.dtype)) return validate(kv);
  return {ErrorCode::unsupported,
          "no append, copy or gather of rows of type " + std::string(to_string(kv.dtype)) + "; see latent_rows.hpp"};
}

Status check_cast(DType from, DType to, const char* name) {
  if (from == to || is_compute_type(from)) return {};
  return {ErrorCode::unsupported, std::string("no cast of new ") + name + " rows from " + std::string(to_string(from)) +
                                      " to " + std::string(to_string(to))};
}

Status check_same_shape(const PagedKvView& a, const PagedKvView& b) {
  if (a.dtype != b.dtype || a.page_size != b.page_size || a.num_kv_heads != b.num_kv_heads ||
      a.head_dim != b.head_dim || a.head_dim_v != b.head_dim_v) {
    return refusal("two pools differ in type, page size, heads or head size; pages cannot be transferred");
  }
  return {};
}

Status check_pairs(std::span<const PagePair> pairs, std::int64_t sources, std::int64_t targets) {
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].source < 0 || pairs[i].source >= sources || pairs[i].target < 0 || pairs[i].target >= targets) {
      return refusal("pair " + std::to_string(i) + " copies page " + std::to_string(pairs[i].source) + " of " +
                     std::to_string(sources) + " to page " + std::to_string(pairs[i].target) + " of " +
                     std::to_string(targets));
    }
  }
  return {};
}

/// Pairs run in any order: a target named twice, or read by another pair, would make the result depend on it.
Status check_targets(std::span<const PagePair> pairs, bool same_pool) {
  std::vector<std::int64_t> targets;
  targets.reserve(pairs.size());
  for (const PagePair& pair : pairs) targets.push_back(pair.target);
  std::sort(targets.begin(), targets.end());
  const auto twice = std::adjacent_find(targets.begin(), targets.end());
  if (twice != targets.end()) return refusal("page " + std::to_string(*twice) + " is the target of two pairs");
  if (!same_pool) return {};
  for (const PagePair& pair : pairs) {
    if (std::binary_search(targets.begin(), targets.end(), pair.source)) {
      return refusal("page " + std::to_string(pair.source) + " is source and target in one call");
    }
  }
  return {};
}

}  // namespace

Result<std::int64_t> append(const PagedKvView& kv, const KvScales& scales, const NewRows& rows,
                            const std::int64_t* slots, std::int64_t num_tokens, const ExecOptions& exec) {
  if (Status status = check_rows(kv); !status) return status.error();
  if (Status status = validate(scales, kv.num_kv_heads); !status) return status.error();
  if (Status status = check_cast(rows.k.dtype, kv.dtype, "K"); !status) return status.error();
  if (Status status = check_cast(rows.v.dtype, kv.dtype, "V"); !status) return status.error();
  if (num_tokens < 0) return refusal("num_tokens is " + std::to_string(num_tokens));
  if (num_tokens == 0) return std::int64_t{0};
  if (slots == nullptr || rows.k.data == nullptr || rows.v.data == nullptr) {
    return refusal("append got no memory for slots, K or V");
  }
  if (exec.backend == Backend::cuda) return cuda_append(kv, scales, rows, slots, num_tokens, exec);
  const TierKernels* kernels = nullptr;
  if (exec.backend == Backend::cpu) {
    const CpuTier tier = exec.tier.value_or(best_tier());
    kernels = kernels_of(tier);
    if (kernels == nullptr) {
      return Error{ErrorCode::unsupported,
                   "the cpu tier " + std::string(to_string(tier)) + " is not available on this machine"};
    }
  }
  return host_append(kv, scales, rows, slots, num_tokens, threads_of(exec), kernels);
}

Status copy_pages(std::span<const PagedKvView> layers, std::span<const PagePair> pairs, const ExecOptions& exec) {
  for (const PagedKvView& layer : layers) {
    if (Status status = check_rows(layer); !status) return status;
    if (Status status = check_pairs(pairs, layer.num_pages, layer.num_pages); !status) return status;
  }
  if (Status status = check_targets(pairs, true); !status) return status;
  if (pairs.empty() || layers.empty()) return {};
  if (exec.backend == Backend::cuda) return cuda_copy_pages(layers, layers, pairs, exec);
  host_copy_pages(layers, layers, pairs, threads_of(exec));
  return {};
}

Status transfer_pages(std::span<const PagedKvView> from, std::span<const PagedKvView> to,
                      std::span<const PagePair> pairs, const ExecOptions& exec) {
  if (from.size() != to.size()) {
    return refusal(std::to_string(from.size()) + " source layers and " + std::to_string(to.size()) + " target layers");
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (Status status = check_rows(from[i]); !status) return status;
    if (Status status = check_rows(to[i]); !status) return status;
    if (Status status = check_same_shape(from[i], to[i]); !status) return status;
    if (Status status = check_pairs(pairs, from[i].num_pages, to[i].num_pages); !status) return status;
  }
  if (Status status = check_targets(pairs, false); !status) return status;
  if (pairs.empty() || from.empty()) return {};
  if (exec.backend == Backend::cuda) return cuda_copy_pages(from, to, pairs, exec);
  host_copy_pages(from, to, pairs, threads_of(exec));
  return {};
}

Status gather(const PagedKvView& kv, std::span<const std::int32_t> pages, std::int64_t len, void* k_out, void* v_out,
              const ExecOptions& exec) {
  if (Status status = check_rows(kv); !status) return status;
  const auto available = static_cast<std::int64_t>(pages.size());
  if (len < 0 || (len + kv.page_size - 1) / kv.page_size > available) {
    return refusal("gather of " + std::to_string(len) + " tokens from " + std::to_string(available) + " pages of " +
                   std::to_string(kv.page_size));
  }
  const std::int64_t used = (len + kv.page_size - 1) / kv.page_size;
  for (std::int64_t i = 0; i < used; ++i) {
    const std::int32_t page = pages[static_cast<std::size_t>(i)];
    if (page < 0 || page >= kv.num_pages) {
      return refusal("pages[" + std::to_string(i) + "] is " + std::to_string(page) + " in a pool of " +
                     std::to_string(kv.num_pages));
    }
  }
  if (len == 0) return {};
  if (k_out == nullptr || v_out == nullptr) return refusal("gather got no memory for its result");
  const auto read = pages.first(static_cast<std::size_t>(used));
  if (exec.backend == Backend::cuda) return cuda_gather(kv, read, len, k_out, v_out, exec);
  host_gather(kv, read, len, k_out, v_out);
  return {};
}

}  // namespace kvpool::kernels
