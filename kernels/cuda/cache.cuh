// Append by slot mapping and copies of whole pages.
#pragma once

#include "kernels/cuda/face.cuh"
#include "kernels/cuda/params.hpp"

namespace kvpool::kernels::gpu {

/// What is stored for a new value; rows of the cache's own type keep every bit, also those of a NaN.
template <class Cache, class New>
struct Cached {
  static KVPOOL_DEVICE Cache from(New value, float scale) { return stored_form<Cache>(value, scale); }
};
template <class Cache>
struct Cached<Cache, Cache> {
  static KVPOOL_DEVICE Cache from(Cache value, float /*scale*/) { return value; }
};

/// All heads of one token: to[..] = stored form of from[..].
template <class Cache, class New>
KVPOOL_DEVICE void append_rows(const Rows& to, const TokenRows& from, const float* scales, std::int64_t token,
                               std::int64_t page, std::int64_t offset, int heads, int dim) {
  auto* target = static_cast<Cache*>(const_cast<void*>(to.data)) + page * to.page_stride + offset * to.token_stride;
  const auto* source = static_cast<const New*>(from.data) + token * from.token_stride;
  for (int i = thread_index(); i < heads * dim; i += block_threads()) {
    const int head = i / dim;
    const int d = i % dim;
    target[head * to.head_stride + d] = Cached<Cache, New>::from(source[head * from.head_stride + d], scales[head]);
  }
}

/// Token block_x(). A slot outside the pool is left alone; that of padding (-1) is one of those.
template <class Cache, class New>
KVPOOL_DEVICE void append_block(const AppendParams& p) {
  const std::int64_t slot = p.slots[block_x()];
  if (slot < 0 || slot >= p.num_slots) return;
  const std::int64_t page = slot / p.page_size;
  const std::int64_t offset = slot % p.page_size;
  append_rows<Cache, New>(p.k, p.new_k, p.k_scale, block_x(), page, offset, p.num_kv_heads, p.dim);
  append_rows<Cache, New>(p.v, p.new_v, p.v_scale, block_x(), page, offset, p.num_kv_heads, p.dim_v);
}

/// Pair block_x() of job block_y(), in units of 16 bytes or of 1.
template <class Unit>
KVPOOL_DEVICE void copy_page_block(const CopyParams& p) {
  const CopyJob& job = p.jobs[block_y()];
  const CopyPair pair = p.pairs[block_x()];
  const auto* from = static_cast<const Unit*>(job.from.data) + pair.source * job.from.page_stride;
  auto* to = static_cast<Unit*>(job.to.data) + pair.target * job.to.page_stride;
  const int per_token = job.num_heads * job.row_units;
  for (int i = thread_index(); i < job.page_size * per_token; i += block_threads()) {
    const int token = i / per_token;
    const int head = i % per_token / job.row_units;
    const int unit = i % job.row_units;
    to[token * job.to.token_stride + head * job.to.head_stride + unit] =
        from[token * job.from.token_stride + head * job.from.head_stride + unit];
  }
}

struct alignas(16) Unit16 {
  std::uint32_t words[4];
};

}  // namespace kvpool::kernels::gpu
