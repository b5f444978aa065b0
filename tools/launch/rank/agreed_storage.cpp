#include "tools/launch/rank/agreed_storage.hpp"

#include <utility>

#include "kvpool/config/memory_plan.hpp"

namespace kvpool::launch {

AgreedStorage::AgreedStorage(const ModelConfig& model, const HeadSlice& slice, std::vector<KVCacheGroup> groups,
                             std::shared_ptr<ComputeDevice> device, std::int64_t available_bytes,
                             std::function<Status(std::int64_t)> verify)
    : model_(model),
      slice_(slice),
      groups_(std::move(groups)),
      device_(std::move(device)),
      limit_(available_bytes / bytes_per_block(groups_)),
      verify_(std::move(verify)) {}

void AgreedStorage::set_available(std::int64_t available_bytes) { limit_ = available_bytes / bytes_per_block(groups_); }

Status AgreedStorage::allocate(std::span<const std::int64_t> num_blocks) {
  if (config_ && config_->num_blocks == num_blocks[0]) return {};
  release();
  PlanOptions options;
  options.num_gpu_blocks_override = num_blocks[0];
  auto config = get_kv_cache_config_from_groups(groups_, limit_ * bytes_per_block(groups_), options);
  if (!config.ok()) return config.error();
  auto storage = KvStorage::allocate(model_, slice_, *config, *device_);
  if (!storage.ok()) {
    // What the system refused at this size it may grant at a smaller one.
    if (storage.error().code == ErrorCode::out_of_memory) limit_ = num_blocks[0] - num_blocks[0] / 4 - 1;
    return storage.error();
  }
  ++generation_;
  config_ = *std::move(config);
  storage_.emplace(*std::move(storage));
  return {};
}

Status AgreedStorage::verify() { return verify_(storage_->size_bytes()); }

void AgreedStorage::release() noexcept {
  storage_.reset();
  config_.reset();
}

std::vector<std::int64_t> AgreedStorage::limits() { return {limit_}; }

}  // namespace kvpool::launch
