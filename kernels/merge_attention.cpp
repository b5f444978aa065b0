// The public merge of (O, LSE) pairs on the host.
#include "kernels/cache_ops_backends.hpp"
#include "kernels/cpu/row_states.hpp"
#include "kernels/cpu/thread_work.hpp"
#include "kvpool/kernels/paged_attention.hpp"

namespace kvpool::kernels {

Status merge_attention(const float* a, const float* lse_a, const float* b, const float* lse_b, float* out, float* lse,
                       std::int64_t rows, std::int64_t dim, const ExecOptions& exec) {
  if (rows < 0 || dim < 1) return {ErrorCode::invalid_argument, "merge_attention needs rows >= 0 and dim >= 1"};
  if (rows == 0) return {};
  if (a == nullptr || b == nullptr || out == nullptr || lse_a == nullptr || lse_b == nullptr || lse == nullptr) {
    return {ErrorCode::invalid_argument, "merge_attention got a null pointer"};
  }
  if (exec.backend == Backend::cuda) return cuda_merge(a, lse_a, b, lse_b, out, lse, rows, dim, exec);
  parallel_for(rows, exec.backend == Backend::reference ? 1 : exec.max_threads, [&](std::int64_t r) {
    lse[r] = merge_row(a + r * dim, lse_a[r], b + r * dim, lse_b[r], out + r * dim, dim);
  });
  return {};
}

}  // namespace kvpool::kernels
