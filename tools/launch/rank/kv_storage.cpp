#include "tools/launch/rank/kv_storage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace kvpool::launch {
namespace {

AttentionShape shape_of(const ModelConfig& model, const HeadSlice& slice) {
  AttentionShape shape;
  shape.num_kv_heads = slice.num_kv_heads;
  shape.head_size = model.head_size;
  shape.dtype = model.kv_dtype;
  return shape;
}

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::optional<std::size_t> group_of(const KVCacheConfig& config, const std::string& layer) {
  for (std::size_t g = 0; g < config.groups.size(); ++g) {
    if (holds(config.groups[g].layer_names, layer)) return g;
  }
  return std::nullopt;
}

std::optional<std::size_t> tensor_of(const KVCacheConfig& config, const std::string& layer) {
  for (std::size_t t = 0; t < config.tensors.size(); ++t) {
    if (holds(config.tensors[t].shared_by, layer)) return t;
  }
  return std::nullopt;
}

kernels::PagedKvView view_in(const KVCacheTensor& tensor, void* memory, const ModelConfig& model,
                             const HeadSlice& slice, std::int64_t block_size, std::int64_t num_blocks) {
  const std::int64_t element = size_in_bytes(model.kv_dtype);
  const std::int64_t half = slice.num_kv_heads * block_size * model.head_size;
  const std::int64_t stride = tensor.block_stride_bytes > 0 ? tensor.block_stride_bytes / element : 2 * half;
  kernels::PagedKvView view;
  view.dtype = model.kv_dtype;
  view.num_pages = num_blocks;
  view.page_size = block_size;
  view.num_kv_heads = slice.num_kv_heads;
  view.head_dim = model.head_size;
  view.head_dim_v = model.head_size;
  std::byte* base = static_cast<std::byte*>(memory) + tensor.offset_bytes;
  view.k = {base, stride, model.head_size, block_size * model.head_size};
  view.v = {base + half * element, stride, model.head_size, block_size * model.head_size};
  return view;
}

}  // namespace

std::vector<NamedLayer> layer_specs(const ModelConfig& model, const HeadSlice& slice, std::int64_t block_size) {
  std::vector<NamedLayer> specs;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::int64_t window = model.sliding_windows[static_cast<std::size_t>(layer)];
    if (window > 0) {
      SlidingWindowSpec spec;
      spec.block_size = block_size;
      spec.shape = shape_of(model, slice);
      spec.sliding_window = window;
      specs.push_back({layer_name(layer), spec});
    } else {
      FullAttentionSpec spec;
      spec.block_size = block_size;
      spec.shape = shape_of(model, slice);
      specs.push_back({layer_name(layer), spec});
    }
  }
  return specs;
}

Result<KvStorage> KvStorage::allocate(const ModelConfig& model, const HeadSlice& slice, const KVCacheConfig& config,
                                      ComputeDevice& device) {
  KvStorage storage;
  storage.num_blocks_ = config.num_blocks;
  for (const KVCacheGroup& group : config.groups) storage.block_sizes_.push_back(block_size(group.spec));
  for (const KVCacheTensor& tensor : config.tensors) {
    auto memory = device.allocate_pool(static_cast<std::size_t>(tensor.size_bytes));
    if (!memory.ok()) return memory.error();
    storage.memory_.push_back(*std::move(memory));
  }
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string name = layer_name(layer);
    const auto group = group_of(config, name);
    const auto tensor = tensor_of(config, name);
    if (!group || !tensor)
      return {ErrorCode::invalid_config, fmt::format("{} has no KV cache group or no memory", name)};
    const kernels::PagedKvView view = view_in(config.tensors[*tensor], storage.memory_[*tensor].data(), model, slice,
                                              storage.block_sizes_[*group], config.num_blocks);
    const std::int64_t page = 2 * view.num_kv_heads * view.page_size * view.head_dim;
    const std::int64_t end = config.tensors[*tensor].offset_bytes +
                             ((config.num_blocks - 1) * view.k.page_stride + page) * size_in_bytes(model.kv_dtype);
    if (end > config.tensors[*tensor].size_bytes) {
      return {ErrorCode::invalid_config, fmt::format("{}: {} blocks end at byte {} of a tensor of {} bytes", name,
                                                     config.num_blocks, end, config.tensors[*tensor].size_bytes)};
    }
    storage.views_.push_back(view);
    storage.groups_.push_back(*group);
  }
  return storage;
}

std::int64_t KvStorage::size_bytes() const noexcept {
  std::int64_t bytes = 0;
  for (const DeviceMemory& memory : memory_) bytes += static_cast<std::int64_t>(memory.size());
  return bytes;
}

std::int64_t KvStorage::resident_bytes(const ComputeDevice& device) const {
  std::int64_t bytes = 0;
  for (const DeviceMemory& memory : memory_) bytes += static_cast<std::int64_t>(device.resident_bytes(memory));
  return bytes;
}

}  // namespace kvpool::launch
