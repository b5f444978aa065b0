// Caches for the attention rows: layers of shuffled pages with random content, larger than what processors keep.
#pragma once

#include <cstdint>
#include <vector>

#include "kvpool/kernels/cache_ops.hpp"
#include "kvpool/kernels/host_memory.hpp"
#include "kvpool/kernels/paged_attention.hpp"

namespace kvpool::tools {

struct CacheShape {
  DType dtype = DType::bfloat16;
  kernels::CacheLayout layout = kernels::CacheLayout::hnd;
  std::int64_t sequences = 8;
  std::int64_t length = 8'192;
  std::int64_t kv_heads = 8;
  std::int64_t group = 4;
  std::int64_t dim = 128;
  std::int64_t page_size = 16;
  std::int64_t layers = 2;

  [[nodiscard]] std::int64_t pages() const noexcept { return sequences * length / page_size; }
  [[nodiscard]] std::int64_t page_bytes() const noexcept { return page_size * kv_heads * dim * size_in_bytes(dtype); }
  /// K and V of one layer.
  [[nodiscard]] std::int64_t layer_bytes() const noexcept { return 2 * pages() * page_bytes(); }
};

/// Throws std::bad_alloc when the system has no memory for it.
class AttentionCache {
 public:
  explicit AttentionCache(const CacheShape& shape);

  [[nodiscard]] const CacheShape& shape() const noexcept { return shape_; }
  [[nodiscard]] const std::vector<std::int32_t>& table() const noexcept { return table_; }
  [[nodiscard]] const kernels::PagedKvView& layer(std::int64_t i) const { return views_[static_cast<std::size_t>(i)]; }

  /// One decode step over the first `layers` layers.
  void decode(const kernels::ExecOptions& exec, std::int64_t layers);

  /// The queries of one step, bf16 [sequences][heads][dim], and its results, fp32.
  [[nodiscard]] const std::vector<std::uint16_t>& queries() const noexcept { return queries_; }
  [[nodiscard]] std::vector<float>& results() noexcept { return results_; }

 private:
  CacheShape shape_;
  std::vector<kernels::HostMemory> memory_;
  std::vector<kernels::PagedKvView> views_;
  std::vector<std::int32_t> table_;
  std::vector<std::uint16_t> queries_;
  std::vector<float> results_;
};

}  // namespace kvpool::tools
