// Blocks that requests need, blocks that fit: the arithmetic that plans, refusals and reports share.
#include <algorithm>
#include <limits>

#include "config/saturating.hpp"
#include "kvpool/config/memory_plan.hpp"

namespace kvpool {
namespace {

using config::add;
using config::mul;

std::int64_t group_bytes(const KVCacheGroup& group) {
  const std::int64_t page = page_size_bytes(group.spec);
  if (std::holds_alternative<UniformTypeSpec>(group.spec)) return page;
  return mul(page, static_cast<std::int64_t>(group.layer_names.size()));
}

bool fits(std::span<const KVCacheGroup> groups, RequestLimits limits, std::int64_t length, std::int64_t usable,
          std::int64_t concurrency) {
  limits.max_model_len = length;
  return mul(blocks_per_request(groups, limits), concurrency) <= usable;
}

}  // namespace

std::int64_t bytes_per_block(std::span<const KVCacheGroup> groups) {
  std::int64_t bytes = 0;
  for (const KVCacheGroup& group : groups) bytes = std::max(bytes, group_bytes(group));
  return bytes;
}

std::int64_t blocks_per_request(std::span<const KVCacheGroup> groups, const RequestLimits& limits) {
  std::int64_t blocks = 0;
  for (const KVCacheGroup& group : groups) blocks = add(blocks, max_blocks_per_request(group.spec, limits));
  return blocks;
}

std::int64_t reserved_blocks(std::span<const KVCacheGroup> groups) {
  std::int64_t blocks = 1;
  for (const KVCacheGroup& group : groups) blocks = add(blocks, permanent_blocks(group.spec));
  return blocks;
}

std::int64_t estimate_max_model_len(std::span<const KVCacheGroup> groups, const RequestLimits& limits,
                                    std::int64_t num_blocks, std::int64_t concurrency) {
  const std::int64_t usable = num_blocks - reserved_blocks(groups);
  std::int64_t fitting = 0;
  std::int64_t beyond = add(limits.max_model_len, 1);
  while (beyond - fitting > 1) {
    const std::int64_t middle = fitting + (beyond - fitting) / 2;
    (fits(groups, limits, middle, usable, concurrency) ? fitting : beyond) = middle;
  }
  return fitting;
}

CapacityReport capacity_report(const KVCacheConfig& config, const RequestLimits& limits) {
  CapacityReport report;
  report.blocks_per_request = blocks_per_request(config.groups, limits);
  if (report.blocks_per_request == 0) {
    report.max_concurrency = std::numeric_limits<double>::infinity();
    report.num_tokens = config::kSaturated;
    return report;
  }
  report.max_concurrency = static_cast<double>(config.num_blocks) / static_cast<double>(report.blocks_per_request);
  const double tokens = report.max_concurrency * static_cast<double>(limits.max_model_len);
  report.num_tokens = tokens < 9.0e18 ? static_cast<std::int64_t>(tokens) : config::kSaturated;
  return report;
}

std::int64_t allocated_bytes(const KVCacheConfig& config) {
  std::int64_t bytes = 0;
  bool slab_counted = false;
  for (const KVCacheTensor& tensor : config.tensors) {
    const bool packed = tensor.block_stride_bytes != 0;
    if (packed && slab_counted) continue;
    slab_counted = slab_counted || packed;
    bytes = add(bytes, tensor.size_bytes);
  }
  return bytes;
}

}  // namespace kvpool
