// Append, page copies and gather in host memory.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cache_ops_backends.hpp"
#include "kernels/cpu/row_task.hpp"
#include "kernels/cpu/thread_work.hpp"
#include "kernels/dtype_dispatch.hpp"
#include "kernels/plan_impl.hpp"

namespace kvpool::kernels {
namespace {

/// Below this a thread is not worth waking.
constexpr std::int64_t kBytesPerTask = std::int64_t{1} << 18;

/// Writes one row of `dim` elements; real numbers are divided by `scale` when the cache is fp8.
using RowWriter = void (*)(const void* source, void* target, std::int64_t dim, float scale);

template <class To, class From>
void cast_row(const void* source, void* target, std::int64_t dim, float scale) {
  const auto* from = static_cast<const From*>(source);
  auto* to = static_cast<To*>(target);
  for (std::int64_t i = 0; i < dim; ++i) to[i] = stored_form<To>(from[i], scale);
}

template <std::int64_t Bytes>
void copy_row(const void* source, void* target, std::int64_t dim, float /*scale*/) {
  std::memcpy(target, source, static_cast<std::size_t>(dim * Bytes));
}

RowWriter row_writer(DType from, DType to) {
  if (from == to) {
    switch (element_bytes(to)) {
      case 1: return copy_row<1>;
      case 2: return copy_row<2>;
      default: return copy_row<4>;
    }
  }
  return with_cache_type(to, [&](auto target) {
    return with_compute_type(from, [&](auto source) -> RowWriter {
      return cast_row<typename decltype(target)::type, typename decltype(source)::type>;
    });
  });
}

/// How rows of one tensor are written.
struct RowCast {
  RowCast(DType from, DType to, const TierKernels* kernels)
      : plain(row_writer(from, to)), tier(from != to && is_fp8(to) ? kernels : nullptr), source_type(from), type(to) {}

  void operator()(const std::byte* source, std::byte* target, std::int64_t dim, float scale) const {
    if (tier != nullptr) {
      tier->to_fp8(source_type, type, source, target, dim, scale);
    } else {
      plain(source, target, dim, scale);
    }
  }

  RowWriter plain;
  const TierKernels* tier;
  DType source_type;
  DType type;
};

std::byte* address(const PagedRows& rows, DType type, std::int64_t page, std::int64_t token, std::int64_t head) {
  return static_cast<std::byte*>(rows.data) + row_offset(rows, page, token, head) * element_bytes(type);
}

const std::byte* new_row(const QueryRows& rows, std::int64_t token, std::int64_t head) {
  return static_cast<const std::byte*>(rows.data) +
         (token * rows.token_stride + head * rows.head_stride) * element_bytes(rows.dtype);
}

/// Heads of a token that lie one behind the other on both sides are one long row.
bool heads_joined(const QueryRows& source, const PagedRows& target, DType type, std::int64_t dim) {
  return source.dtype == type && source.head_stride == dim && target.head_stride == dim;
}

/// Bytes of a page when its rows fill one gapless range, else 0.
std::int64_t dense_page_elements(const PagedRows& rows, const PagedKvView& view, std::int64_t dim) {
  const std::int64_t heads = view.num_kv_heads;
  const bool nhd = rows.head_stride == dim && rows.token_stride == heads * dim;
  const bool hnd = rows.token_stride == dim && rows.head_stride == view.page_size * dim;
  return nhd || hnd ? view.page_size * heads * dim : 0;
}

void copy_page(const PagedRows& from, const PagedRows& to, const PagedKvView& source, const PagedKvView& target,
               std::int64_t dim, const PagePair& pair) {
  const std::int64_t bytes = element_bytes(source.dtype);
  const std::int64_t dense = dense_page_elements(from, source, dim);
  const bool same_order = from.token_stride == to.token_stride && from.head_stride == to.head_stride;
  if (dense > 0 && same_order && dense_page_elements(to, target, dim) == dense) {
    std::memcpy(address(to, target.dtype, pair.target, 0, 0), address(from, source.dtype, pair.source, 0, 0),
                static_cast<std::size_t>(dense * bytes));
    return;
  }
  for (std::int64_t head = 0; head < source.num_kv_heads; ++head) {
    for (std::int64_t token = 0; token < source.page_size; ++token) {
      std::memcpy(address(to, target.dtype, pair.target, token, head),
                  address(from, source.dtype, pair.source, token, head), static_cast<std::size_t>(dim * bytes));
    }
  }
}

void gather_rows(const PagedRows& rows, const PagedKvView& kv, std::int64_t dim, std::span<const std::int32_t> pages,
                 std::int64_t len, void* out) {
  const std::int64_t bytes = dim * element_bytes(kv.dtype);
  auto* target = static_cast<std::byte*>(out);
  for (std::int64_t token = 0; token < len; ++token) {
    const std::int32_t page = pages[static_cast<std::size_t>(token / kv.page_size)];
    for (std::int64_t head = 0; head < kv.num_kv_heads; ++head, target += bytes)
      std::memcpy(target, address(rows, kv.dtype, page, token % kv.page_size, head), static_cast<std::size_t>(bytes));
  }
}

}  // namespace

std::int64_t host_append(const PagedKvView& kv, const KvScales& scales, const NewRows& rows, const std::int64_t* slots,
                         std::int64_t num_tokens, int max_threads, const TierKernels* kernels) {
  const RowCast write_k(rows.k.dtype, kv.dtype, kernels);
  const RowCast write_v(rows.v.dtype, kv.dtype, kernels);
  const bool joined_k = heads_joined(rows.k, kv.k, kv.dtype, kv.head_dim);
  const bool joined_v = heads_joined(rows.v, kv.v, kv.dtype, kv.head_dim_v);
  const std::int64_t num_slots = kv.num_pages * kv.page_size;
  std::atomic<std::int64_t> outside{0};
  const auto write_token = [&](std::int64_t t) {
    const std::int64_t slot = slots[t];
    if (slot == kSkipSlot) return;
    if (slot < 0 || slot >= num_slots) {
      outside.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    const std::int64_t page = slot / kv.page_size;
    const std::int64_t token = slot % kv.page_size;
    if (joined_k)
      write_k(new_row(rows.k, t, 0), address(kv.k, kv.dtype, page, token, 0), kv.num_kv_heads * kv.head_dim, 1);
    if (joined_v)
      write_v(new_row(rows.v, t, 0), address(kv.v, kv.dtype, page, token, 0), kv.num_kv_heads * kv.head_dim_v, 1);
    for (std::int64_t h = 0; h < kv.num_kv_heads; ++h) {
      const HeadScales scale = head_scales(scales, kv, h);
      if (!joined_k) write_k(new_row(rows.k, t, h), address(kv.k, kv.dtype, page, token, h), kv.head_dim, scale.k);
      if (!joined_v) write_v(new_row(rows.v, t, h), address(kv.v, kv.dtype, page, token, h), kv.head_dim_v, scale.v);
    }
  };
  const std::int64_t token_bytes = kv.num_kv_heads * (kv.head_dim + kv.head_dim_v) * element_bytes(kv.dtype);
  const std::int64_t per_task = std::max<std::int64_t>(1, kBytesPerTask / token_bytes);
  parallel_for((num_tokens + per_task - 1) / per_task, max_threads, [&](std::int64_t task) {
    const std::int64_t end = std::min(num_tokens, (task + 1) * per_task);
    for (std::int64_t t = task * per_task; t < end; ++t) write_token(t);
  });
  return outside.load(std::memory_order_relaxed);
}

void host_copy_pages(std::span<const PagedKvView> from, std::span<const PagedKvView> to,
                     std::span<const PagePair> pairs, int max_threads) {
  const auto layers = static_cast<std::int64_t>(from.size());
  const auto count = static_cast<std::int64_t>(pairs.size());
  const PagedKvView& first = from[0];
  const std::int64_t page_bytes =
      first.page_size * first.num_kv_heads * (first.head_dim + first.head_dim_v) * element_bytes(first.dtype);
  const std::int64_t per_task = std::max<std::int64_t>(1, kBytesPerTask / page_bytes);
  parallel_for((layers * count + per_task - 1) / per_task, max_threads, [&](std::int64_t task) {
    const std::int64_t end = std::min(layers * count, (task + 1) * per_task);
    for (std::int64_t i = task * per_task; i < end; ++i) {
      const auto& source = from[static_cast<std::size_t>(i / count)];
      const auto& target = to[static_cast<std::size_t>(i / count)];
      const PagePair& pair = pairs[static_cast<std::size_t>(i % count)];
      copy_page(source.k, target.k, source, target, source.head_dim, pair);
      const bool shared = source.k.data == source.v.data && target.k.data == target.v.data;
      if (!shared || source.head_dim_v > source.head_dim)
        copy_page(source.v, target.v, source, target, source.head_dim_v, pair);
    }
  });
}

void host_gather(const PagedKvView& kv, std::span<const std::int32_t> pages, std::int64_t len, void* k_out,
                 void* v_out) {
  gather_rows(kv.k, kv, kv.head_dim, pages, len, k_out);
  gather_rows(kv.v, kv, kv.head_dim_v, pages, len, v_out);
}

}  // namespace kvpool::kernels
