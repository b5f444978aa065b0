// The KV memory of one rank: the tensors of a KVCacheConfig and a view of each layer inside them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvpool/config/kv_cache_config.hpp"
#include "kvpool/config/kv_cache_groups.hpp"
#include "kvpool/foundation/error.hpp"
#include "kvpool/kernels/paged_kv_view.hpp"
#include "tools/launch/model/head_slice.hpp"
#include "tools/launch/model/model_config.hpp"
#include "tools/launch/rank/compute_device.hpp"

namespace kvpool::launch {

/// One spec per layer of the model, as this rank stores it: full or sliding-window attention.
[[nodiscard]] std::vector<NamedLayer> layer_specs(const ModelConfig& model, const HeadSlice& slice,
                                                  std::int64_t block_size);

class KvStorage {
 public:
  /// Allocates every tensor on `device`. Errors: out_of_memory with the bytes; invalid_config when a layer of the model
  /// has no group, no tensor, or a tensor that is too small.
  [[nodiscard]] static Result<KvStorage> allocate(const ModelConfig& model, const HeadSlice& slice,
                                                  const KVCacheConfig& config, ComputeDevice& device);

  /// Cache of a layer: pages [K of all heads][V of all heads], each [head][token][element].
  [[nodiscard]] const kernels::PagedKvView& view(std::int64_t layer) const {
    return views_[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] const std::vector<kernels::PagedKvView>& views() const noexcept { return views_; }
  /// Group whose block table the layer uses.
  [[nodiscard]] std::size_t group(std::int64_t layer) const { return groups_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] const std::vector<std::int64_t>& block_sizes() const noexcept { return block_sizes_; }
  [[nodiscard]] std::int64_t num_blocks() const noexcept { return num_blocks_; }
  [[nodiscard]] std::int64_t size_bytes() const noexcept;
  /// Of these, what takes physical memory now. `device` is the one of allocate(). O(pages).
  [[nodiscard]] std::int64_t resident_bytes(const ComputeDevice& device) const;

 private:
  KvStorage() = default;
  std::vector<DeviceMemory> memory_;
  std::vector<kernels::PagedKvView> views_;
  std::vector<std::size_t> groups_;
  std::vector<std::int64_t> block_sizes_;  ///< per group
  std::int64_t num_blocks_ = 0;
};

}  // namespace kvpool::launch
