#include "tools/launch/rank/rank_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace kvpool::launch {
namespace {

constexpr std::uint32_t kDivergenceInterval = 32;  // steps

DivergenceOptions divergence_options(Timeout deadline) {
  DivergenceOptions options;
  options.interval_steps = kDivergenceInterval;
  options.timeout = deadline;
  return options;
}

/// Tables of several groups share one order of changes: a table is named request * groups + group.
TableChangeSink recorder(DivergenceMonitor& monitor, std::size_t groups) {
  return [&monitor, groups](std::uint64_t request, std::size_t group, std::size_t index, std::uint32_t block) {
    monitor.record({request * groups + group, static_cast<std::uint32_t>(index), std::int64_t{block}});
  };
}

}  // namespace

RankStep::RankStep(const TinyModel& model, const KvStorage& storage, Communicator& communicator,
                   const ExecutorOptions& options)
    : model_(model),
      communicator_(communicator),
      options_(options),
      monitor_(communicator, divergence_options(options.deadline)),
      mirror_(storage.block_sizes(), storage.num_blocks(), recorder(monitor_, storage.block_sizes().size())),
      executor_(model, storage, communicator, options) {}

Status RankStep::run(const StepMessage& message, GatheredOutputs& gathered) {
  const auto timed = [](double& seconds, auto&& work) {
    const auto start = std::chrono::steady_clock::now();
    Status status = work();
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return status;
  };
  if (Status status = timed(table_seconds_, [&] { return mirror_.apply(message); }); !status.ok()) return status;
  if (Status status = executor_.execute(message, mirror_, outputs_); !status.ok()) return status;
  if (Status status = timed(gather_seconds_, [&] { return hand_over(gathered); }); !status.ok()) return status;
  const bool wish = wants_agreement_ && monitor_.next_step_compares() && wants_agreement_();
  if (Status status = timed(table_seconds_, [&] { return note(monitor_.end_step(wish)); }); !status.ok()) return status;
  ++steps_;
  tokens_ += message.num_tokens();
  return {};
}

Status RankStep::compare_tables() { return note(monitor_.compare_now()); }

Status RankStep::note(const Result<DivergenceMonitor::StepOutcome>& outcome) {
  wishes_.clear();
  if (!outcome.ok()) return outcome.status();
  divergence_checks_ += outcome->compared ? 1 : 0;
  if (outcome->alarm) alarms_.push_back(outcome->alarm->describe());
  wishes_ = outcome->wants_agreement;
  return {};
}

Status RankStep::hand_over(GatheredOutputs& gathered) {
  const auto parts = communicator_.gather(std::as_bytes(std::span<const float>(outputs_.heads)), 0, options_.deadline);
  if (!parts.ok()) return parts.error();
  if (communicator_.rank() != 0) return {};
  return put_together(*parts, gathered);
}

Status RankStep::put_together(const std::vector<Bytes>& parts, GatheredOutputs& gathered) const {
  const auto ranks = static_cast<std::size_t>(communicator_.world_size());
  const auto slice = static_cast<std::size_t>(model_.query_width());
  const auto places = static_cast<std::size_t>(outputs_.rows * model_.config().num_layers);
  gathered.rows = outputs_.rows;
  gathered.hidden = outputs_.hidden;
  gathered.heads.resize(places * slice * ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (parts[rank].size() != places * slice * sizeof(float)) {
      return {ErrorCode::bad_input,
              fmt::format("rank {} sent {} bytes of results, expected {}", rank, parts[rank].size(),
                          places * slice * sizeof(float)),
              static_cast<int>(rank)};
    }
    for (std::size_t place = 0; place < places; ++place) {
      std::memcpy(gathered.heads.data() + (place * ranks + rank) * slice,
                  parts[rank].data() + place * slice * sizeof(float), slice * sizeof(float));
    }
  }
  return {};
}

}  // namespace kvpool::launch
