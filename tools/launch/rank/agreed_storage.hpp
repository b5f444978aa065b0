// The KV pool of one rank as the agreement drives it: allocated, checked and released for a block count.
#pragma once

#include <cstdint>
#include <functional>
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
                std::int64_t available_bytes, std::function<Status(std::int64_t)> verify);

  [[nodiscard]] Status allocate(std::span<const std::int64_t> num_blocks) override;
  [[nodiscard]] Status verify() override;
  void release() noexcept override;
  [[nodiscard]] std::vector<std::int64_t> limits() override;

  /// After a successful agreement.
  [[nodiscard]] const KVCacheConfig& config() const { return *config_; }
  [[nodiscard]] const KvStorage& storage() const { return *storage_; }

 private:
  ModelConfig model_;
  HeadSlice slice_;
  std::vector<KVCacheGroup> groups_;
  std::int64_t limit_;  ///< blocks
  std::function<Status(std::int64_t)> verify_;
  std::optional<KVCacheConfig> config_;
  std::optional<KvStorage> storage_;
};

}  // namespace kvpool::launch
