// One step on one rank, the same code on every rank: learn the tables, compute, hand the results to rank 0.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kvpool/multigpu/communicator.hpp"
#include "kvpool/multigpu/divergence_monitor.hpp"
#include "tools/launch/rank/step_executor.hpp"
#include "tools/launch/step/step_message.hpp"
#include "tools/launch/step/table_mirror.hpp"

namespace kvpool::launch {

/// Outputs of all ranks, as rank 0 puts them together.
struct GatheredOutputs {
  std::int64_t rows = 0;
  std::vector<float> heads;   ///< [rows][layers][query heads][head size]
  std::vector<float> hidden;  ///< [rows][hidden size]
};

/// Not thread-safe. References must outlive it.
class RankStep {
 public:
  RankStep(const TinyModel& model, const KvStorage& storage, Communicator& communicator,
           const ExecutorOptions& options);

  /// Asked before each comparison of tables: has this rank's memory changed so much that the ranks should agree again?
  void watch_memory(std::function<bool()> wants_agreement) { wants_agreement_ = std::move(wants_agreement); }

  /// Errors: those of the step (layout_mismatch, kernels) and of the communicator. On rank 0 `gathered` holds the
  /// results of all ranks.
  [[nodiscard]] Status run(const StepMessage& message, GatheredOutputs& gathered);

  /// Compares the tables of the steps since the last comparison: at the end of a run. All ranks call it.
  [[nodiscard]] Status compare_tables();

  /// Ranks that asked for a new agreement in the last step; the same on every rank.
  [[nodiscard]] const std::vector<int>& agreement_wishes() const noexcept { return wishes_; }
  /// The storage has another number of blocks now, and all tables are about to be removed.
  void pool_changed(std::int64_t num_blocks) { mirror_.pool_changed(num_blocks); }

  /// Executed on this rank.
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  [[nodiscard]] const ExecutionTimes& times() const noexcept { return executor_.times(); }
  /// Seconds spent in handing results over.
  [[nodiscard]] double gather_seconds() const noexcept { return gather_seconds_; }
  /// Seconds spent in applying changes of tables, folding them into the digest, and comparing it with the other ranks'.
  [[nodiscard]] double table_seconds() const noexcept { return table_seconds_; }
  [[nodiscard]] std::int64_t divergence_checks() const noexcept { return divergence_checks_; }
  /// One line per alarm.
  [[nodiscard]] const std::vector<std::string>& alarms() const noexcept { return alarms_; }

 private:
  [[nodiscard]] Status note(const Result<DivergenceMonitor::StepOutcome>& outcome);
  [[nodiscard]] Status hand_over(GatheredOutputs& gathered);
  [[nodiscard]] Status put_together(const std::vector<Bytes>& parts, GatheredOutputs& gathered) const;

  const TinyModel& model_;
  Communicator& communicator_;
  ExecutorOptions options_;
  DivergenceMonitor monitor_;
  TableMirror mirror_;
  StepExecutor executor_;
  StepOutputs outputs_;
  std::function<bool()> wants_agreement_;
  std::vector<int> wishes_;
  std::int64_t steps_ = 0;
  std::int64_t tokens_ = 0;
  double gather_seconds_ = 0;
  double table_seconds_ = 0;
  std::int64_t divergence_checks_ = 0;
  std::vector<std::string> alarms_;
};

}  // namespace kvpool::launch
