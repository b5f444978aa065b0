// The KV pool of one rank as the agreement drives it: allocated, checked and released for a block count.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvpool/config/kv_cache_config.hpp"
#include "kvpool/multigpu/rank_coordinator.hpp"
#include "tools/launch/rank/kv_storage.hpp"

namespace kvpool::launch {

/// One pool. Used by the thread that runs the agreement.
class AgreedStorage final : public KVStorage {
 public:
  /// `verify` repeats the profile run beside the pool of so many bytes.
  AgreedStorage(const ModelConfig& model, const HeadSlice& slice, std::vector<KVCacheGroup> groups,
                std::shared_ptr<ComputeDevice> device, std::int64_t available_bytes,
                std::function<Status(std::int64_t)> verify);

  /// Before another agreement: what this rank can hold now.
  void set_available(std::int64_t available_bytes);

  /// A pool of that many blocks which is already there keeps its content.
  [[nodiscard]] Status allocate(std::span<const std::int64_t> num_blocks) override;
  [[nodiscard]] Status verify() override;
  void release() noexcept override;
  [[nodiscard]] std::vector<std::int64_t> limits() override;

  [[nodiscard]] std::int64_t limit() const noexcept { return limit_; }
  /// Counts the pools that were allocated: another number means that the content is gone.
  [[nodiscard]] int generation() const noexcept { return generation_; }
  [[nodiscard]] std::int64_t resident_bytes() const { return storage_ ? storage_->resident_bytes(*device_) : 0; }

  /// After a successful agreement.
  [[nodiscard]] const KVCacheConfig& config() const { return *config_; }
  [[nodiscard]] const KvStorage& storage() const { return *storage_; }

 private:
  ModelConfig model_;
  HeadSlice slice_;
  std::vector<KVCacheGroup> groups_;
  std::shared_ptr<ComputeDevice> device_;
  std::int64_t limit_;  ///< blocks
  int generation_ = 0;
  std::function<Status(std::int64_t)> verify_;
  std::optional<KVCacheConfig> config_;
  std::optional<KvStorage> storage_;
};

}  // namespace kvpool::launch
