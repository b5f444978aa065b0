// The KV pool of one rank from the first measurement on: profile, agreement, and agreements later in the run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kvpool/config/kv_cache_config.hpp"
#include "kvpool/config/layout_text.hpp"
#include "kvpool/multigpu/communicator.hpp"
#include "tools/launch/model/model_config.hpp"
#include "tools/launch/rank/agreed_storage.hpp"
#include "tools/launch/rank/profile_rank.hpp"
#include "tools/launch/rank/rank_log.hpp"

namespace kvpool::launch {

/// What a serving loop needs of the pool; all ranks call agree_again() at the same step boundary.
class PoolKeeper {
 public:
  PoolKeeper() = default;
  PoolKeeper(const PoolKeeper&) = delete;
  PoolKeeper& operator=(const PoolKeeper&) = delete;
  virtual ~PoolKeeper() = default;

  [[nodiscard]] virtual const KVCacheConfig& config() const = 0;
  /// Steps 1 to 3 of the agreement once more, with what each rank can hold now. True: the pool is another one, its
  /// content is gone; false: the ranks agreed on the same size and every block is as it was.
  [[nodiscard]] virtual Result<bool> agree_again() = 0;
};

struct RankPoolOptions {
  ProfileOptions profile;
  std::int64_t max_model_len = 0;  ///< tokens
  Timeout deadline{60'000};        ///< per step of an agreement
};

/// Used by the thread of its rank. References must outlive it.
class RankPool final : public PoolKeeper {
 public:
  RankPool(const ModelConfig& model, const ExecutorOptions& executor, RankPoolOptions options,
           Communicator& communicator, RankLog& log);

  /// Loads the model, measures and agrees; a collective. `device_problem`: why this rank has no device; the others
  /// hear of it as a failed profile. Errors: those of RankCoordinator, equal on every rank.
  [[nodiscard]] Status prepare(const Status& device_problem);

  [[nodiscard]] const KVCacheConfig& config() const override { return storage_->config(); }
  [[nodiscard]] Result<bool> agree_again() override;

  /// Whether a new agreement would serve: this rank can hold clearly less than agreed, or it was the smallest and can
  /// hold clearly more now. Reads the memory probe.
  [[nodiscard]] bool memory_has_changed();

  [[nodiscard]] const RankMemory& memory() const noexcept { return memory_; }
  [[nodiscard]] const TinyModel& model() const { return profile_->model(); }
  [[nodiscard]] const KvStorage& storage() const { return storage_->storage(); }
  [[nodiscard]] CountingAllocator& counter() { return profile_->counter(); }
  /// Block counts of all agreements so far, the first one included.
  [[nodiscard]] const std::vector<std::int64_t>& agreements() const noexcept { return agreements_; }

 private:
  [[nodiscard]] Status agree(const Status& profiling);

  ModelConfig config_;
  ExecutorOptions executor_;
  RankPoolOptions options_;
  Communicator& communicator_;
  RankLog& log_;
  std::optional<RankProfile> profile_;
  std::vector<LayoutLine> layout_;
  std::int64_t block_bytes_ = 1;  ///< of all layers of this rank
  std::optional<AgreedStorage> storage_;
  RankMemory memory_;
  std::int64_t own_limit_ = 0;  ///< blocks, at the last agreement
  std::vector<std::int64_t> agreements_;
};

}  // namespace kvpool::launch
