// The fourth step of the agreement, Serve: notices when block tables of ranks have come apart.
//
// Every rank records each change of a block table that it applies. After every `interval_steps` steps
// the ranks compare one 64-bit digest of the changes since the last comparison; only when it differs do
// they look for the first change in which they do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/communicator.hpp"

namespace kvpool {

/// One change: entry `index` of the block table of `sequence` became `block_id`.
struct BlockTableChange {
  std::uint64_t sequence = 0;
  std::uint32_t index = 0;
  std::int64_t block_id = 0;
  bool operator==(const BlockTableChange&) const = default;
};

/// Where two ranks differ first. An empty change: that rank has recorded fewer.
struct DivergenceAlarm {
  int rank = 0;                               ///< the one that differs from most others
  int reference_rank = 0;                     ///< the lowest of those it differs from
  std::uint64_t position = 0;                 ///< of the change, counted since the last comparison
  bool located = true;                        ///< false: the position lies beyond what was kept, only ranks are known
  std::optional<BlockTableChange> there;      ///< on `rank`
  std::optional<BlockTableChange> reference;  ///< on `reference_rank`
  /// "rank 3: sequence 17 index 4 block 9, rank 0: block 8".
  [[nodiscard]] std::string describe() const;
};

struct DivergenceOptions {
  std::uint32_t interval_steps = 32;
  Timeout timeout{60'000};
  std::uint64_t max_kept_changes = std::uint64_t{1} << 20U;  ///< 24 bytes each, per interval
};

/// Used by one thread of its rank. All ranks call end_step() equally often.
class DivergenceMonitor {
 public:
  /// `communicator` must outlive the monitor.
  DivergenceMonitor(Communicator& communicator, DivergenceOptions options);

  /// O(1), amortised; no messages.
  void record(const BlockTableChange& change);

  /// What the ranks learned at the end of a step, equal on all of them.
  struct StepOutcome {
    bool compared = false;
    std::optional<DivergenceAlarm> alarm;
    std::vector<int> wants_agreement;  ///< ranks that ask for a new agreement at this step boundary
  };

  /// Ends a step; every interval_steps-th call compares (one all-gather of 16 bytes a rank, blocking on
  /// the other ranks up to the timeout). `want_agreement` is remembered until the next comparison.
  [[nodiscard]] Result<StepOutcome> end_step(bool want_agreement = false);

  /// Whether the next end_step() compares: the moment to find out what to ask for. Equal on all ranks.
  [[nodiscard]] bool next_step_compares() const noexcept { return steps_ + 1 >= options_.interval_steps; }

  /// Compares what was recorded since the last comparison, however few steps that were: a run that ends between two
  /// comparisons is not left unchecked. Called by all ranks at the same point; without a step since the last
  /// comparison it sends nothing.
  [[nodiscard]] Result<StepOutcome> compare_now();

 private:
  Result<StepOutcome> compare();
  Result<DivergenceAlarm> locate(const std::vector<std::uint64_t>& digests);

  Communicator& communicator_;
  DivergenceOptions options_;
  std::uint32_t steps_ = 0;
  bool want_agreement_ = false;
  std::uint64_t digest_ = 0;
  std::uint64_t changes_ = 0;           ///< since the last comparison
  std::vector<BlockTableChange> kept_;  ///< the first max_kept_changes of them
  std::vector<std::uint64_t> marks_;    ///< digest after each stretch of changes
};

}  // namespace kvpool
