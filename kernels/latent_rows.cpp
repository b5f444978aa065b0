#include "kvpool/kernels/latent_rows.hpp"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/dtype_dispatch.hpp"
#include "kernels/latent_format.hpp"

namespace kvpool::kernels {
namespace {

constexpr float kLargestE4m3 = 448.0F;

Error refusal(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

Status check_pages(const LatentPages& pages) {
  if (pages.data == nullptr) return refusal("latent pages have no memory");
  if (pages.num_pages < 1) return refusal("num_pages is " + std::to_string(pages.num_pages));
  if (pages.page_size < 1) return refusal("page_size is " + std::to_string(pages.page_size));
  if (pages.token_stride < kLatentRowBytes) {
    return refusal("token_stride is " + std::to_string(pages.token_stride) + "; a latent row takes " +
                   std::to_string(kLatentRowBytes) + " bytes");
  }
  if (pages.num_pages > 1 && pages.page_stride < (pages.page_size - 1) * pages.token_stride + kLatentRowBytes)
    return refusal("page_stride is " + std::to_string(pages.page_stride) + "; pages would overlap");
  return {};
}

std::byte* row_at(const LatentPages& pages, std::int64_t page, std::int64_t token) {
  return pages.data + page * pages.page_stride + token * pages.token_stride;
}

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}
template <class T>
float group_scale(const T* values) {
  float largest = 0;
  for (std::int64_t i = 0; i < kLatentScaleGroup; ++i) {
    const float magnitude = std::abs(to_float(values[i]));
    if (std::isfinite(magnitude) && magnitude > largest) largest = magnitude;
  }
  const float scale = largest / kLargestE4m3;
  return scale > 0 ? scale : 1.0F;
}

template <class T>
void write_latent(const T* values, std::byte* row) {
  for (std::int64_t g = 0; g < kLatentGroups; ++g) {
    const T* group = values + g * kLatentScaleGroup;
    const float scale = group_scale(group);
    put(row + kLatentScalesAt + g * static_cast<std::int64_t>(sizeof(float)), scale);
    for (std::int64_t i = 0; i < kLatentScaleGroup; ++i)
      put(row + g * kLatentScaleGroup + i, stored_form<E4m3>(group[i], scale));
  }
}

template <class T>
void write_rope(const T* values, std::byte* row) {
  for (std::int64_t i = 0; i < kLatentRopeDim; ++i)
    put(row + kLatentRopeAt + i * static_cast<std::int64_t>(sizeof(Bf16)), stored_form<Bf16>(values[i], 1.0F));
}

template <class T>
void read_row(const std::byte* row, T* out) {
  for (std::int64_t d = 0; d < kLatentKeyDim; ++d)
    out[d] = stored_form<T>(static_cast<float>(latent_element(row, d)), 1.0F);
}

}  // namespace

Result<std::int64_t> append_latent(const LatentPages& pages, const QueryRows& latent, const QueryRows& rope,
                                   std::span<const std::int64_t> slots) {
  if (Status status = check_pages(pages); !status) return status.error();
  for (const auto& [name, rows] : {std::pair{"latent", &latent}, {"rope", &rope}}) {
    if (!is_compute_type(rows->dtype)) {
      return Error{ErrorCode::unsupported,
                   std::string("no cast of ") + name + " rows from " + std::string(to_string(rows->dtype))};
    }
    if (rows->data == nullptr && !slots.empty()) return refusal(std::string(name) + " rows have no memory");
  }
  std::int64_t outside = 0;
  for (std::size_t t = 0; t < slots.size(); ++t) {
    const std::int64_t slot = slots[t];
    if (slot == -1) continue;
    if (slot < 0 || slot >= pages.num_pages * pages.page_size) {
      ++outside;
      continue;
    }
    std::byte* row = row_at(pages, slot / pages.page_size, slot % pages.page_size);
    const auto token = static_cast<std::int64_t>(t);
    with_compute_type(latent.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      write_latent(static_cast<const T*>(latent.data) + token * latent.token_stride, row);
    });
    with_compute_type(rope.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      write_rope(static_cast<const T*>(rope.data) + token * rope.token_stride, row);
    });
  }
  return outside;
}

PagedKvView latent_view(const LatentPages& pages) noexcept {
  PagedKvView view;
  view.dtype = DType::uint8;
  view.num_pages = pages.num_pages;
  view.page_size = pages.page_size;
  view.num_kv_heads = 1;
  view.head_dim = kLatentKeyDim;
  view.head_dim_v = kLatentDim;
  view.k = view.v = {pages.data, pages.page_stride, pages.token_stride, kLatentRowBytes};
  return view;
}

Status expand_latent(const LatentPages& pages, std::span<const std::int32_t> table, std::int64_t len, void* out,
                     DType type) {
  if (Status status = check_pages(pages); !status) return status;
  if (type != DType::float32 && type != DType::bfloat16)
    return {ErrorCode::unsupported, "no expansion of latent rows to " + std::string(to_string(type))};
  const std::int64_t used = len < 0 ? -1 : (len + pages.page_size - 1) / pages.page_size;
  if (used < 0 || used > static_cast<std::int64_t>(table.size())) {
    return refusal("expansion of " + std::to_string(len) + " tokens from " + std::to_string(table.size()) +
                   " pages of " + std::to_string(pages.page_size));
  }
  for (const std::int32_t page : table.first(static_cast<std::size_t>(used))) {
    if (page < 0 || page >= pages.num_pages) {
      return refusal("page " + std::to_string(page) + " in a pool of " + std::to_string(pages.num_pages));
    }
  }
  if (len == 0) return {};
  if (out == nullptr) return refusal("expansion got no memory for its result");
  for (std::int64_t j = 0; j < len; ++j) {
    const std::byte* row = row_at(pages, table[static_cast<std::size_t>(j / pages.page_size)], j % pages.page_size);
    if (type == DType::float32) {
      read_row(row, static_cast<float*>(out) + j * kLatentKeyDim);
    } else {
      read_row(row, static_cast<Bf16*>(out) + j * kLatentKeyDim);
    }
  }
  return {};
}

}  // namespace kvpool::kernels
