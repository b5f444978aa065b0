// How ranks come to one KV-cache size: Hello, Minimum, Commit. Either every rank returns the same
// agreement, or every rank returns the same error, which names the rank and the reason.
//
// Each step is one Communicator::agree(), with one deadline. What a rank must not differ in travels as
// facts (layout_text.hpp) under a SHA-256; sizes travel as 64-bit block counts, never as bytes.
// The fourth step, Serve, is DivergenceMonitor (divergence_monitor.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvpool/config/kv_cache_config.hpp"
#include "kvpool/config/layout_text.hpp"
#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/communicator.hpp"

namespace kvpool {

inline constexpr std::uint32_t kAgreementProtocolVersion = 1;

struct AgreementOptions {
  Timeout deadline{60'000};   ///< per step
  int max_commit_rounds = 4;  ///< attempts to allocate, each with fewer blocks than the one before
  /// Absolute block count per pool, instead of the minimum over ranks. Empty: none. Refused where it
  /// does not fit on every rank.
  std::vector<std::int64_t> num_blocks_override;
  /// The least per pool with which the system is of use; ranks that hold less are an error. Empty: 1.
  std::vector<std::int64_t> min_blocks;
};

/// Which part of the model a rank of a pipeline holds.
struct PipelineStage {
  int index = 0;
  std::vector<std::string> layers;        ///< of this rank; ranks of one stage hold the same ones
  std::vector<std::string> model_layers;  ///< of all stages together, the same on every rank
};

/// What one rank brings to the agreement.
struct RankView {
  Status profiling;                  ///< of this rank's memory profiling; its message reaches every rank
  Status local_part;                 ///< of check_local_part()
  std::vector<LayoutLine> layout;    ///< canonical_layout() of the merged groups of all ranks
  std::vector<std::int64_t> limits;  ///< blocks this rank can hold, per pool; 0 or less: none
  /// In a pipeline: the stages of all ranks must cover the model's layers exactly, each in one stage.
  std::optional<PipelineStage> stage = std::nullopt;
};

/// The KV tensors of one rank, as the coordinator drives them. Called by the thread that called agree().
class KVStorage {
 public:
  virtual ~KVStorage() = default;
  /// Allocates (or resizes to) num_blocks[p] blocks in each pool p, all or nothing.
  [[nodiscard]] virtual Status allocate(std::span<const std::int64_t> num_blocks) = 0;
  /// Repeats the profile run beside the allocated pools; an error means that it does not fit.
  [[nodiscard]] virtual Status verify() { return {}; }
  /// Gives everything back; called after any failure, also when nothing was allocated.
  virtual void release() noexcept = 0;
  /// What this rank could hold now, per pool. Asked after allocate() or verify() failed.
  [[nodiscard]] virtual std::vector<std::int64_t> limits() = 0;
};

struct Agreement {
  std::vector<std::int64_t> num_blocks;                ///< per pool, equal on all ranks
  std::vector<std::vector<std::int64_t>> rank_limits;  ///< [rank][pool] as of the last round
  int commit_rounds = 0;
  std::string layout_digest;  ///< SHA-256 in hex
  bool operator==(const Agreement&) const = default;
};

/// Checks this rank's layers against the merged view: each must be in exactly one group, with an equal
/// spec. `invalid_config` names layer and group. O(layers).
[[nodiscard]] Status check_local_part(std::span<const std::pair<std::string, KVCacheSpec>> local_layers,
                                      std::span<const KVCacheGroup> merged_groups);

/// SHA-256 over layout_text(), in hex.
[[nodiscard]] std::string layout_digest(std::span<const LayoutLine> layout);

/// Runs the protocol for one rank. Not thread-safe; blocks on the other ranks up to the deadline of each
/// step. All ranks construct it with equal options (a difference is found and reported as one of layout).
class RankCoordinator {
 public:
  /// Both must outlive the coordinator.
  RankCoordinator(Communicator& communicator, AgreementOptions options);

  /// Steps 1 to 3. On success `storage` holds the agreed pools; on failure it has been released.
  /// An exception from `storage` counts as that rank's failure. At a step boundary of a running system the
  /// same call is the re-agreement: allocate() then resizes.
  /// Errors, equal on every rank: rank_failed (profiling or local part), layout_mismatch (layouts differ, or the
  /// pipeline's stages leave out or repeat a layer), out_of_memory (a rank holds too little, the override does not fit,
  /// no round succeeded), bad_input (what a rank sent cannot be read), and those of Communicator.
  [[nodiscard]] Result<Agreement> agree(const RankView& view, KVStorage& storage);

 private:
  Result<Agreement> run(const RankView& view, KVStorage& storage);
  Status hello(const RankView& view, std::span<const LayoutLine> facts, std::size_t pools);
  Status explain_layouts(std::span<const LayoutLine> facts, std::span<const std::string> digests);
  Result<std::vector<std::vector<std::int64_t>>> exchange_limits(std::span<const std::int64_t> mine);
  Result<std::vector<std::int64_t>> choose(const std::vector<std::vector<std::int64_t>>& limits) const;
  Result<Agreement> commit(std::vector<std::vector<std::int64_t>> limits, KVStorage& storage);
  std::vector<LayoutLine> facts_of(const RankView& view) const;

  Communicator& communicator_;
  AgreementOptions options_;
};

}  // namespace kvpool
