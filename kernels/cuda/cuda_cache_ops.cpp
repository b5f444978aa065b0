// Append, page copies and gather on a device.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cache_ops_backends.hpp"
#include "kernels/cuda/attend_plan.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/launchers.hpp"
#include "kernels/cuda/runtime.hpp"
#include "kernels/dtype_dispatch.hpp"

namespace kvpool::kernels {
namespace {

using gpu::as_status;
using gpu::DeviceGuard;
using gpu::StreamMemory;

cudaStream_t stream_of(const ExecOptions& exec) { return static_cast<cudaStream_t>(exec.stream); }

/// A copy of K or V rows, in bytes at first.
gpu::CopyJob job_of(const PagedRows& from, const PagedRows& to, const PagedKvView& view, std::int64_t dim) {
  const std::int64_t bytes = element_bytes(view.dtype);
  const auto side = [&](const PagedRows& rows) {
    return gpu::CopySide{rows.data, rows.page_stride * bytes, rows.token_stride * bytes, rows.head_stride * bytes};
  };
  return {side(from), side(to), static_cast<std::int32_t>(view.page_size), static_cast<std::int32_t>(view.num_kv_heads),
          static_cast<std::int32_t>(dim * bytes)};
}

bool is_wide(const gpu::CopySide& side) {
  return reinterpret_cast<std::uintptr_t>(side.data) % 16 == 0 && side.page_stride % 16 == 0 &&
         side.token_stride % 16 == 0 && side.head_stride % 16 == 0;
}

/// Turns all jobs to units of 16 bytes when every one of them allows it.
bool widen(std::vector<gpu::CopyJob>& jobs) {
  const bool wide = std::all_of(jobs.begin(), jobs.end(), [](const gpu::CopyJob& job) {
    return is_wide(job.from) && is_wide(job.to) && job.row_units % 16 == 0;
  });
  if (!wide) return false;
  for (gpu::CopyJob& job : jobs) {
    for (gpu::CopySide* side : {&job.from, &job.to}) {
      side->page_stride /= 16;
      side->token_stride /= 16;
      side->head_stride /= 16;
    }
    job.row_units /= 16;
  }
  return true;
}

Status launch_jobs(std::vector<gpu::CopyJob> jobs, const std::vector<gpu::CopyPair>& pairs, cudaStream_t stream) {
  const bool wide = widen(jobs);
  StreamMemory device_jobs;
  StreamMemory device_pairs;
  Status status = device_jobs.upload(jobs.data(), jobs.size() * sizeof(gpu::CopyJob), stream);
  if (status) status = device_pairs.upload(pairs.data(), pairs.size() * sizeof(gpu::CopyPair), stream);
  if (!status) return status;
  const gpu::CopyParams params{device_jobs.as<gpu::CopyJob>(), device_pairs.as<gpu::CopyPair>()};
  return as_status(
      gpu::launch_copy_pages(params, static_cast<int>(pairs.size()), static_cast<int>(jobs.size()), wide, stream),
      "launching a page copy");
}

enum class Memory { device, pinned, pageable };

Memory memory_of(const void* pointer) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
    (void)cudaGetLastError();
    return Memory::pageable;
  }
  if (attributes.type == cudaMemoryTypeUnregistered) return Memory::pageable;
  return attributes.type == cudaMemoryTypeHost ? Memory::pinned : Memory::device;
}
bool on_host(const void* pointer) { return memory_of(pointer) != Memory::device; }

bool dense_page(const PagedRows& rows, const PagedKvView& view, std::int64_t dim) {
  const bool nhd = rows.head_stride == dim && rows.token_stride == view.num_kv_heads * dim;
  const bool hnd = rows.token_stride == dim && rows.head_stride == view.page_size * dim;
  return nhd || hnd;
}

/// Whole pages on their way between host and device.
struct PageCopies {
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<std::size_t> bytes;
  bool pinned = true;  ///< all host memory is page-locked

  [[nodiscard]] Status add(const PagedRows& source, const PagedRows& target, const PagedKvView& view, std::int64_t dim,
                           std::span<const PagePair> pairs) {
    if (!dense_page(source, view, dim) || source.token_stride != target.token_stride ||
        source.head_stride != target.head_stride) {
      return {ErrorCode::unsupported, "cuda: pages between host and device must be dense and of one layout"};
    }
    pinned = pinned && memory_of(source.data) != Memory::pageable && memory_of(target.data) != Memory::pageable;
    const std::int64_t element = element_bytes(view.dtype);
    for (const PagePair& pair : pairs) {
      to.push_back(static_cast<std::byte*>(target.data) + pair.target * target.page_stride * element);
      from.push_back(static_cast<const std::byte*>(source.data) + pair.source * source.page_stride * element);
      bytes.push_back(static_cast<std::size_t>(view.page_size * view.num_kv_heads * dim * element));
    }
    return {};
  }

  /// One call for all pages where the runtime has it; it takes page-locked memory and a stream of one's own.
  [[nodiscard]] Status launch(cudaStream_t stream) {
    if (to.empty()) return {};
#if CUDART_VERSION >= 13000
    if (pinned && stream != nullptr) {
      cudaMemcpyAttributes attributes{};
      attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
      std::size_t first = 0;
      return as_status(
          cudaMemcpyBatchAsync(to.data(), from.data(), bytes.data(), to.size(), &attributes, &first, 1, stream),
          "copying pages between host and device");
    }
#endif
    for (std::size_t i = 0; i < to.size(); ++i) {
      const cudaError_t error = cudaMemcpyAsync(to[i], from[i], bytes[i], cudaMemcpyDefault, stream);
      if (error != cudaSuccess) return as_status(error, "copying a page between host and device");
    }
    return {};
  }
};

}  // namespace

Result<std::int64_t> cuda_append(const PagedKvView& kv, const KvScales& scales, const NewRows& rows,
                                 const std::int64_t* slots, std::int64_t num_tokens, const ExecOptions& exec) {
  if (Status status = cuda_available(); !status) return status.error();
  if (!is_compute_type(rows.k.dtype) || rows.k.dtype != rows.v.dtype) {
    return Error{ErrorCode::unsupported, "cuda: new K and V rows must be of one type: float32, float16 or bfloat16"};
  }
  if (kv.num_kv_heads > gpu::kMaxKvHeads) {
    return Error{ErrorCode::unsupported, "cuda: at most " + std::to_string(gpu::kMaxKvHeads) + " KV heads on a rank"};
  }
  const DeviceGuard guard(exec.device);
  if (Status status = guard.status(); !status) return status.error();
  const cudaError_t error = gpu::launch_append(gpu::append_params(kv, scales, rows, slots), kv.dtype, rows.k.dtype,
                                               num_tokens, stream_of(exec));
  if (error != cudaSuccess) return as_status(error, "launching an append").error();
  return std::int64_t{0};
}

Status cuda_copy_pages(std::span<const PagedKvView> from, std::span<const PagedKvView> to,
                       std::span<const PagePair> pairs, const ExecOptions& exec) {
  if (Status status = cuda_available(); !status) return status;
  const DeviceGuard guard(exec.device);
  if (Status status = guard.status(); !status) return status;
  std::vector<gpu::CopyJob> jobs;
  PageCopies across;  // all layers are looked at before the first page moves
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (on_host(from[i].k.data) || on_host(to[i].k.data)) {
      Status status = across.add(from[i].k, to[i].k, from[i], from[i].head_dim, pairs);
      if (status) status = across.add(from[i].v, to[i].v, from[i], from[i].head_dim_v, pairs);
      if (!status) return status;
      continue;
    }
    jobs.push_back(job_of(from[i].k, to[i].k, from[i], from[i].head_dim));
    jobs.push_back(job_of(from[i].v, to[i].v, from[i], from[i].head_dim_v));
  }
  if (Status status = across.launch(stream_of(exec)); !status) return status;
  if (jobs.empty()) return {};
  std::vector<gpu::CopyPair> list;
  for (const PagePair& pair : pairs) list.push_back({pair.source, pair.target});
  return launch_jobs(std::move(jobs), list, stream_of(exec));
}

Status cuda_gather(const PagedKvView& kv, std::span<const std::int32_t> pages, std::int64_t len, void* k_out,
                   void* v_out, const ExecOptions& exec) {
  if (Status status = cuda_available(); !status) return status;
  const DeviceGuard guard(exec.device);
  if (Status status = guard.status(); !status) return status;
  const auto dense = [&](void* data, std::int64_t dim) {
    return PagedRows{data, kv.page_size * kv.num_kv_heads * dim, kv.num_kv_heads * dim, dim};
  };
  std::vector<gpu::CopyJob> jobs = {job_of(kv.k, dense(k_out, kv.head_dim), kv, kv.head_dim),
                                    job_of(kv.v, dense(v_out, kv.head_dim_v), kv, kv.head_dim_v)};
  std::vector<gpu::CopyPair> whole;
  for (std::int64_t i = 0; i < len / kv.page_size; ++i) whole.push_back({pages[static_cast<std::size_t>(i)], i});
  if (!whole.empty()) {
    if (Status status = launch_jobs(jobs, whole, stream_of(exec)); !status) return status;
  }
  const std::int64_t rest = len % kv.page_size;
  if (rest == 0) return {};
  for (gpu::CopyJob& job : jobs) job.page_size = static_cast<std::int32_t>(rest);
  return launch_jobs(jobs, {{pages[static_cast<std::size_t>(len / kv.page_size)], len / kv.page_size}},
                     stream_of(exec));
}

}  // namespace kvpool::kernels
