// How much memory one rank may give to its KV pool: measured with its own model at the largest batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/communicator.hpp"
#include "kvpool/multigpu/memory_profile.hpp"
#include "tools/launch/model/tiny_model.hpp"
#include "tools/launch/rank/rank_memory.hpp"
#include "tools/launch/rank/step_executor.hpp"

namespace kvpool::launch {

struct ProfileOptions {
  double utilization = 0.92;
  std::optional<std::int64_t> explicit_bytes;  ///< of the KV pool; empty: what is measured, at most 1 GiB
  std::int64_t block_size = 16;
  std::int64_t max_step_tokens = 512;  ///< rows of the largest step
  int ranks_on_host = 1;
  /// Where memory figures come from; empty: the device's own probe.
  std::function<std::unique_ptr<MemoryProbe>(CountingAllocator&)> make_probe;
};

/// Model and memory of one rank. Not thread-safe; references must outlive it.
class RankProfile final : public ProfiledWorkload {
 public:
  RankProfile(const ModelConfig& model, const HeadSlice& slice, const ProfileOptions& options,
              const ExecutorOptions& executor, Communicator& communicator);
  ~RankProfile() override;

  /// Loads the model and measures. Every rank calls it at the same time: the warm-up is a collective.
  /// Errors: those of determine_available_memory and of the communicator.
  [[nodiscard]] Result<RankMemory> measure();

  /// Bytes for the KV pool as of now, while one exists that takes `resident_bytes`. After measure().
  [[nodiscard]] std::int64_t available_now(std::int64_t resident_bytes);

  /// After measure().
  [[nodiscard]] const MemoryProfile& profile() const { return *profile_; }

  /// Repeats the profile run beside an allocated pool.
  [[nodiscard]] Status verify_beside(std::int64_t kv_bytes);

  [[nodiscard]] const TinyModel& model() const { return *model_; }
  /// Counts weights and activations.
  [[nodiscard]] CountingAllocator& counter() noexcept { return counter_; }

  /// Whether this rank has taken part in the first collectives: a rank that fails before must do so all the same.
  [[nodiscard]] bool warmed_up() const noexcept { return warmed_up_; }

  [[nodiscard]] Status warm_up() override;
  [[nodiscard]] Status load_weights() override;
  [[nodiscard]] Status run() override;

 private:
  CountingAllocator counter_;
  ModelConfig config_;
  HeadSlice slice_;
  ProfileOptions options_;
  ExecutorOptions executor_;
  Communicator& communicator_;
  std::unique_ptr<MemoryProbe> probe_;
  std::optional<TinyModel> model_;
  std::optional<MemoryProfile> profile_;
  ProfileRequest request_;
  Staging sum_stage_;
  bool warmed_up_ = false;
};

}  // namespace kvpool::launch
