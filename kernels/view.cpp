#include <cmath>
#include <limits>
#include <string>

#include "kernels/dtype_dispatch.hpp"
#include "kernels/latent_format.hpp"
#include "kvpool/kernels/paged_kv_view.hpp"

namespace kvpool::kernels {
namespace {

Status refuse(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

Status check_scale_list(std::span<const float> list, const KvScales& scales, std::int64_t heads, const char* name) {
  const auto size = static_cast<std::int64_t>(list.size());
  for (std::int64_t i = 0; i < size; ++i) {
    const float scale = list[static_cast<std::size_t>(i)];
    if (!std::isfinite(scale) || !(scale > 0)) {
      return refuse(std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(scale) +
                    "; a scale must be finite and above 0");
    }
  }
  if (size > 1 && (scales.layer + 1) * heads > size) {
    return refuse(std::string(name) + " has " + std::to_string(size) + " entries; layer " +
                  std::to_string(scales.layer) + " with " + std::to_string(heads) + " KV heads needs " +
                  std::to_string((scales.layer + 1) * heads));
  }
  return {};
}

PagedRows dense_rows(const KvShape& shape, CacheLayout layout, std::int64_t dim, void* data) noexcept {
  const std::int64_t page = shape.page_size * shape.num_kv_heads * dim;
  if (layout == CacheLayout::nhd) return {data, page, shape.num_kv_heads * dim, dim};
  return {data, page, dim, shape.page_size * dim};
}

void* advance(void* data, std::int64_t elements, DType type) noexcept {
  return static_cast<std::byte*>(data) + elements * element_bytes(type);
}

/// Bytes are fp8 rows of latent attention or nothing that attention knows.
bool is_latent_view(const PagedKvView& view) {
  const PagedRows& k = view.k;
  const PagedRows& v = view.v;
  const bool same_rows = k.data == v.data && k.page_stride == v.page_stride && k.token_stride == v.token_stride;
  return view.num_kv_heads == 1 && view.head_dim == kLatentKeyDim && view.head_dim_v == kLatentDim && same_rows &&
         (view.page_size == 1 || k.token_stride >= kLatentRowBytes);
}

Status check_csr_row(const CsrPages& pages, std::size_t b, std::int64_t page_size) {
  const std::int64_t first = pages.indptr[b];
  const std::int64_t last = pages.indptr[b + 1];
  if (first < 0 || last < first || last > static_cast<std::int64_t>(pages.indices.size())) {
    return refuse("indptr[" + std::to_string(b) + "..] is " + std::to_string(first) + ", " + std::to_string(last) +
                  " with " + std::to_string(pages.indices.size()) + " indices");
  }
  const std::int64_t tail = pages.last_page_len[b];
  const bool fits = first == last ? tail == 0 : tail >= 1 && tail <= page_size;
  if (!fits) {
    return refuse("last_page_len[" + std::to_string(b) + "] is " + std::to_string(tail) + " for a sequence of " +
                  std::to_string(last - first) + " pages of " + std::to_string(page_size) + " tokens");
  }
  return {};
}

}  // namespace

PagedKvView contiguous_kv_view(const KvShape& shape, CacheLayout layout, void* k, void* v) noexcept {
  PagedKvView view;
  view.dtype = shape.dtype;
  view.num_pages = shape.num_pages;
  view.page_size = shape.page_size;
  view.num_kv_heads = shape.num_kv_heads;
  view.head_dim = shape.head_dim;
  view.head_dim_v = shape.head_dim_v == 0 ? shape.head_dim : shape.head_dim_v;
  view.k = dense_rows(shape, layout, view.head_dim, k);
  view.v = dense_rows(shape, layout, view.head_dim_v, v);
  return view;
}

PagedKvView head_slice(const PagedKvView& view, std::int64_t first, std::int64_t count) noexcept {
  PagedKvView slice = view;
  slice.num_kv_heads = count;
  slice.k.data = advance(view.k.data, first * view.k.head_stride, view.dtype);
  slice.v.data = advance(view.v.data, first * view.v.head_stride, view.dtype);
  return slice;
}

Status validate(const PagedKvView& view) {
  if (!is_cache_type(view.dtype) && !is_latent_view(view)) {
    return {ErrorCode::unsupported, "no kernel for a cache of type " + std::string(to_string(view.dtype))};
  }
  const auto check = [](const char* name, std::int64_t value) {
    return value >= 1 ? Status{}
                      : refuse(std::string(name) + " is " + std::to_string(value) + "; it must be 1 or more");
  };
  for (const auto& [name, value] : {std::pair{"num_pages", view.num_pages},
                                    {"page_size", view.page_size},
                                    {"num_kv_heads", view.num_kv_heads},
                                    {"head_dim", view.head_dim},
                                    {"head_dim_v", view.head_dim_v}}) {
    if (Status status = check(name, value); !status) return status;
  }
  if (view.num_pages > std::numeric_limits<std::int32_t>::max()) {
    return refuse("num_pages is " + std::to_string(view.num_pages) + "; page numbers have 31 bits");
  }
  if (view.k.data == nullptr || view.v.data == nullptr) return refuse("the view has no memory for K or V");
  return {};
}

Status validate(const KvScales& scales, std::int64_t num_kv_heads) {
  if (scales.layer < 0) return refuse("the layer of the scales is " + std::to_string(scales.layer));
  if (Status status = check_scale_list(scales.k, scales, num_kv_heads, "k_scale"); !status) return status;
  return check_scale_list(scales.v, scales, num_kv_heads, "v_scale");
}

Result<PaddedPages> pad_csr(const CsrPages& pages, std::int64_t page_size, std::int64_t num_pages) {
  if (page_size < 1) return Error{ErrorCode::invalid_argument, "page_size is " + std::to_string(page_size)};
  if (pages.indptr.empty() || pages.indptr[0] != 0 || pages.last_page_len.size() + 1 != pages.indptr.size()) {
    return Error{ErrorCode::invalid_argument, "indptr must hold one entry more than last_page_len and start at 0"};
  }
  const std::size_t batch = pages.last_page_len.size();
  std::int64_t longest = 0;
  for (std::size_t b = 0; b < batch; ++b) {
    if (Status status = check_csr_row(pages, b, page_size); !status) return status.error();
    longest = std::max<std::int64_t>(longest, pages.indptr[b + 1] - pages.indptr[b]);
  }
  const auto used = static_cast<std::size_t>(pages.indptr[batch]);
  for (std::size_t i = 0; i < used; ++i) {
    if (pages.indices[i] < 0 || pages.indices[i] >= num_pages) {
      return Error{ErrorCode::invalid_argument, "indices[" + std::to_string(i) + "] names page " +
                                                    std::to_string(pages.indices[i]) + " of a pool of " +
                                                    std::to_string(num_pages)};
    }
  }
  PaddedPages padded;
  padded.columns = longest;
  padded.entries.assign(batch * static_cast<std::size_t>(longest), -1);
  padded.seq_lens.reserve(batch);
  for (std::size_t b = 0; b < batch; ++b) {
    const std::int64_t count = pages.indptr[b + 1] - pages.indptr[b];
    for (std::int64_t i = 0; i < count; ++i) {
      padded.entries[b * static_cast<std::size_t>(longest) + static_cast<std::size_t>(i)] =
          pages.indices[static_cast<std::size_t>(pages.indptr[b] + i)];
    }
    const std::int64_t len = count == 0 ? 0 : (count - 1) * page_size + pages.last_page_len[b];
    padded.seq_lens.push_back(static_cast<std::int32_t>(len));
  }
  return padded;
}

}  // namespace kvpool::kernels
