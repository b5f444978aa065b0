#include "tools/launch/rank/profile_rank.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "kvpool/kernels/backend.hpp"
#include "tools/launch/verify/solo_run.hpp"

namespace kvpool::launch {

RankProfile::RankProfile(const ModelConfig& model, const HeadSlice& slice, const ProfileOptions& options,
                         const ExecutorOptions& executor, Communicator& communicator)
    : config_(model), slice_(slice), options_(options), executor_(executor), communicator_(communicator) {
  executor_.counter = &counter_;
}

RankProfile::~RankProfile() = default;

Result<RankMemory> RankProfile::measure() {
  if (options_.make_probe) {
    probe_ = options_.make_probe(counter_);
  } else {
    auto probe = executor_.device->make_probe(counter_, options_.ranks_on_host);
    if (!probe.ok()) return probe.error();
    probe_ = *std::move(probe);
  }
  ProfileRequest& request = request_;
  request.utilization = options_.utilization;
  request.explicit_kv_bytes = options_.explicit_bytes;
  // Everybody on a host allocates and frees all the time; own use is counted to the byte, so only a movement of
  // a good part of the memory is worth a second look.
  const std::int64_t total = probe_->read().runtime_total.value_or(0);
  request.drift_tolerance_bytes = std::max(request.drift_tolerance_bytes, total / 8);
  auto profile = determine_available_memory(*probe_, *this, request);
  if (!profile.ok()) return profile.error();
  profile_ = *std::move(profile);
  RankMemory memory;
  memory.rank = communicator_.rank();
  memory.total = profile_->ledger.total;
  memory.peak = profile_->peak_bytes;
  memory.non_pool = profile_->non_pool_bytes;
  memory.available = profile_->available_bytes;
  memory.backend = std::string(kernels::to_string(executor_.exec.backend));
  memory.ledger = ledger_lines(profile_->ledger);
  memory.device = probe_->device_name() + " " + executor_.device->variant();
  return memory;
}

std::int64_t RankProfile::available_now(std::int64_t resident_bytes) {
  return available_beside_pool(*probe_, *profile_, request_, resident_bytes);
}

Status RankProfile::verify_beside(std::int64_t kv_bytes) {
  return verify_beside_pool(*probe_, *this, *profile_, kv_bytes);
}

Status RankProfile::warm_up() {
  warmed_up_ = true;
  std::array<float, 16> values{};
  Status status = sum_over_ranks(values, communicator_, *executor_.device, sum_stage_, executor_.deadline);
  if (!status.ok()) return status;
  return communicator_.barrier(executor_.deadline);
}

Status RankProfile::load_weights() {
  model_.emplace(config_, slice_, best_row_product_tier(), &counter_);
  return {};
}

/// One long prompt in one step. Sums over ranks need no memory of their own here, so the rank computes alone: ranks
/// may repeat this a different number of times.
Status RankProfile::run() {
  const std::vector<TokenId> tokens(static_cast<std::size_t>(options_.max_step_tokens), TokenId{1});
  SoloOptions solo;
  solo.block_size = options_.block_size;
  solo.chunk = options_.max_step_tokens;
  return run_alone(*model_, solo, executor_, tokens, 1).status();
}

}  // namespace kvpool::launch
