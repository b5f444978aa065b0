// How a rank's blocks lie in memory: a tensor per layer, tensors shared across groups, or one slab.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "config/saturating.hpp"
#include "config/spec_access.hpp"
#include "kvpool/config/memory_plan.hpp"

namespace kvpool {
namespace {

using config::add;
using config::mul;

bool is_mixed(const KVCacheGroup& group) { return std::holds_alternative<UniformTypeSpec>(group.spec); }

// A mixed group of which this rank holds no layer is represented by a plain spec.
bool is_mixed_or_empty(const KVCacheGroup& group) { return is_mixed(group) || group.layer_names.empty(); }

bool is_packed(std::span<const KVCacheGroup> groups, bool cross_layer_blocks) {
  if (groups.size() < 2) return false;
  return cross_layer_blocks || std::all_of(groups.begin(), groups.end(), is_mixed_or_empty);
}

std::int64_t layer_page(const KVCacheGroup& group, std::size_t layer) {
  if (const auto* uniform = std::get_if<UniformTypeSpec>(&group.spec)) {
    return config::layer_page_size_bytes(uniform->layers[layer].spec);
  }
  return page_size_bytes(group.spec);
}

// Every layer has its own memory.
std::vector<KVCacheTensor> separate_tensors(const KVCacheGroup& group, std::int64_t num_blocks) {
  std::vector<KVCacheTensor> tensors;
  for (std::size_t i = 0; i < group.layer_names.size(); ++i) {
    KVCacheTensor tensor;
    tensor.size_bytes = mul(layer_page(group, i), num_blocks);
    tensor.shared_by = {group.layer_names[i]};
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// A block belongs to one group at a time, so the groups' i-th layers can share memory.
std::vector<KVCacheTensor> shared_tensors(std::span<const KVCacheGroup> groups, std::int64_t num_blocks) {
  std::vector<KVCacheTensor> tensors;
  for (const KVCacheGroup& group : groups) {
    for (std::size_t i = 0; i < group.layer_names.size(); ++i) {
      if (i == tensors.size()) {
        KVCacheTensor tensor;
        tensor.size_bytes = mul(page_size_bytes(group.spec), num_blocks);
        tensors.push_back(std::move(tensor));
      }
      tensors[i].shared_by.push_back(group.layer_names[i]);
    }
  }
  return tensors;
}

// One slab per block: each group's layers back to back from the slab's first byte.
std::vector<KVCacheTensor> packed_tensors(std::span<const KVCacheGroup> groups, std::int64_t num_blocks) {
  const std::int64_t stride = bytes_per_block(groups);
  std::map<std::int64_t, KVCacheTensor> by_offset;
  for (const KVCacheGroup& group : groups) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < group.layer_names.size(); ++i) {
      KVCacheTensor& tensor = by_offset[offset];
      tensor.shared_by.push_back(group.layer_names[i]);
      tensor.offset_bytes = offset;
      tensor.block_stride_bytes = stride;
      tensor.size_bytes = mul(stride, num_blocks);
      offset = add(offset, layer_page(group, i));
    }
  }
  std::vector<KVCacheTensor> tensors;
  tensors.reserve(by_offset.size());
  for (auto& [offset, tensor] : by_offset) tensors.push_back(std::move(tensor));
  return tensors;
}

}  // namespace

Result<KVCacheConfig> get_kv_cache_config_from_groups(std::span<const KVCacheGroup> groups,
                                                      std::int64_t available_bytes, const PlanOptions& options) {
  KVCacheConfig result;
  result.groups.assign(groups.begin(), groups.end());
  result.prefix_cache_retention_interval = options.prefix_cache_retention_interval;
  const std::int64_t block_bytes = bytes_per_block(groups);
  if (groups.empty() || block_bytes == 0) {
    result.num_blocks = 1;
    return result;
  }
  result.num_blocks = std::max<std::int64_t>(available_bytes, 0) / block_bytes;
  if (options.num_gpu_blocks_override) {
    if (*options.num_gpu_blocks_override < 1) {
      return {ErrorCode::invalid_config,
              "num_gpu_blocks_override " + std::to_string(*options.num_gpu_blocks_override) + " must be at least 1"};
    }
    result.num_blocks = *options.num_gpu_blocks_override;
  }
  if (is_packed(groups, options.cross_layer_blocks)) {
    result.tensors = packed_tensors(groups, result.num_blocks);
  } else if (groups.size() == 1) {
    result.tensors = separate_tensors(groups.front(), result.num_blocks);
  } else {
    result.tensors = shared_tensors(groups, result.num_blocks);
  }
  return result;
}

}  // namespace kvpool
