// One rank's work in a step: append the new K and V of its heads, attend, project, sum over ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/kernels/paged_attention.hpp"
#include "kvpool/multigpu/communicator.hpp"
#include "tools/launch/model/tiny_model.hpp"
#include "tools/launch/rank/compute_device.hpp"
#include "tools/launch/rank/kv_storage.hpp"
#include "tools/launch/step/step_message.hpp"
#include "tools/launch/step/table_mirror.hpp"

namespace kvpool::launch {

/// Seconds spent, since the executor was made.
struct ExecutionTimes {
  double attention = 0;      ///< append and paged attention
  double projection = 0;     ///< embedding, q/k/v and output projection
  double communication = 0;  ///< sums over ranks
};

struct ExecutorOptions {
  /// Keys per partial result: fixed, so that results do not depend on batch, chunks or ranks.
  std::int64_t fixed_split = 256;
  kernels::ExecOptions exec;  ///< of `device`, with the caller's number of threads
  std::shared_ptr<ComputeDevice> device = host_device();
  Timeout deadline{60000};
  CountingAllocator* counter = nullptr;  ///< of the activations; null: not counted
};

/// Results of the rows that produce outputs, in the order of the step.
struct StepOutputs {
  std::int64_t rows = 0;
  std::vector<float> heads;   ///< [rows][layers][query heads of this rank][head size]
  std::vector<float> hidden;  ///< [rows][hidden size], after the last layer; the same on every rank
};

/// values[i] = sum over ranks, in host memory, by way of the device where the communicator sums there. The order is
/// fixed unless the communicator chooses it itself.
[[nodiscard]] Status sum_over_ranks(std::span<float> values, Communicator& communicator, ComputeDevice& device,
                                    Staging& staging, Timeout deadline);

/// Not thread-safe. References must outlive it.
class StepExecutor {
 public:
  StepExecutor(const TinyModel& model, const KvStorage& storage, Communicator& communicator,
               const ExecutorOptions& options);

  /// `mirror` has applied the step. Errors: those of the kernels and of the communicator.
  [[nodiscard]] Status execute(const StepMessage& step, const TableMirror& mirror, StepOutputs& outputs);

  [[nodiscard]] const ExecutionTimes& times() const noexcept { return times_; }

 private:
  struct GroupTables {
    std::vector<std::int32_t> entries;
    std::int64_t columns = 0;
    std::vector<std::int64_t> slots;
    const std::int32_t* device_entries = nullptr;
    const std::int64_t* device_slots = nullptr;
    Staging entries_stage;
    Staging slots_stage;
  };

  void gather_inputs(const StepMessage& step);
  void gather_tables(const StepMessage& step, const TableMirror& mirror);
  [[nodiscard]] Status upload_tables();
  [[nodiscard]] Status make_plans();
  [[nodiscard]] Status copy_pages(const StepMessage& step) const;
  [[nodiscard]] Status run_layer(std::int64_t layer);
  [[nodiscard]] Status attend(std::int64_t layer);
  void collect(std::int64_t layer, StepOutputs& outputs) const;

  const TinyModel& model_;
  const KvStorage& storage_;
  Communicator& communicator_;
  ExecutorOptions options_;
  ExecutionTimes times_;

  std::int64_t rows_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<std::int64_t> positions_;
  std::vector<std::int32_t> seq_lens_;
  std::vector<std::int32_t> cu_q_;
  std::vector<std::int64_t> output_rows_;
  std::vector<GroupTables> tables_;
  std::map<std::int64_t, kernels::AttentionPlan> plans_;  ///< by window
  CountedFloats hidden_, scratch_, qkv_, attention_, partial_;
  Staging qkv_stage_, attention_stage_, sum_stage_;
};

}  // namespace kvpool::launch
