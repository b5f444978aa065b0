#include "tools/launch/rank/step_executor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kvpool/kernels/cache_ops.hpp"

namespace kvpool::launch {
namespace {

class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

Status sum_over_ranks(std::span<float> values, Communicator& communicator, ComputeDevice& device, Staging& staging,
                      Timeout deadline) {
  if (communicator.sum_memory() == MemoryKind::host) {
    return communicator.all_reduce_sum(values, SumOrder::fixed_tree, deadline);
  }
  const std::size_t bytes = values.size_bytes();
  auto place = device.place_for(staging, values.data(), bytes);
  if (!place.ok()) return place.status();
  if (auto uploaded = device.upload(staging, values.data(), bytes); !uploaded.ok()) return uploaded.status();
  // The communicator has a stream of its own: what it sums must have arrived.
  if (Status status = device.wait(); !status.ok()) return status;
  const std::span<float> there(static_cast<float*>(*place), values.size());
  if (Status status = communicator.all_reduce_sum(there, SumOrder::any, deadline); !status.ok()) return status;
  return device.download(values.data(), *place, bytes);
}

StepExecutor::StepExecutor(const TinyModel& model, const KvStorage& storage, Communicator& communicator,
                           const ExecutorOptions& options)
    : model_(model), storage_(storage), communicator_(communicator), options_(options) {
  for (CountedFloats* buffer : {&hidden_, &scratch_, &qkv_, &attention_, &partial_}) {
    *buffer = CountedFloats(CountedAllocator<float>(options_.counter));
  }
  tables_.resize(storage.block_sizes().size());
}

Status StepExecutor::execute(const StepMessage& step, const TableMirror& mirror, StepOutputs& outputs) {
  gather_inputs(step);
  gather_tables(step, mirror);
  if (Status status = upload_tables(); !status.ok()) return status;
  if (Status status = make_plans(); !status.ok()) return status;
  if (Status status = copy_pages(step); !status.ok()) return status;
  const std::int64_t layers = model_.config().num_layers;
  outputs.rows = static_cast<std::int64_t>(output_rows_.size());
  outputs.heads.resize(static_cast<std::size_t>(outputs.rows * layers * model_.query_width()));
  outputs.hidden.resize(static_cast<std::size_t>(outputs.rows * model_.config().hidden_size));
  {
    const Stopwatch watch(times_.projection);
    model_.embed(tokens_, positions_, hidden_.data());
  }
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    if (Status status = run_layer(layer); !status.ok()) return status;
    collect(layer, outputs);
  }
  const std::int64_t width = model_.config().hidden_size;
  for (std::size_t i = 0; i < output_rows_.size(); ++i) {
    std::copy_n(hidden_.data() + output_rows_[i] * width, width,
                outputs.hidden.data() + static_cast<std::int64_t>(i) * width);
  }
  return {};
}

void StepExecutor::gather_inputs(const StepMessage& step) {
  tokens_.clear();
  positions_.clear();
  seq_lens_.clear();
  cu_q_.assign(1, 0);
  output_rows_.clear();
  for (const StepSequence& sequence : step.sequences) {
    tokens_.insert(tokens_.end(), sequence.tokens.begin(), sequence.tokens.end());
    for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
      positions_.push_back(sequence.num_computed + static_cast<std::int64_t>(i));
    }
    seq_lens_.push_back(static_cast<std::int32_t>(sequence.length()));
    cu_q_.push_back(static_cast<std::int32_t>(tokens_.size()));
    for (std::uint32_t i = sequence.num_outputs; i > 0; --i) {
      output_rows_.push_back(static_cast<std::int64_t>(tokens_.size()) - i);
    }
  }
  rows_ = static_cast<std::int64_t>(tokens_.size());
  const auto rows = static_cast<std::size_t>(rows_);
  const auto grow = [rows](CountedFloats& buffer, std::int64_t width) {
    if (buffer.size() < rows * static_cast<std::size_t>(width)) buffer.resize(rows * static_cast<std::size_t>(width));
  };
  grow(hidden_, model_.config().hidden_size);
  grow(scratch_, model_.config().hidden_size);
  grow(partial_, model_.config().hidden_size);
  grow(qkv_, model_.qkv_width());
  grow(attention_, model_.query_width());
}

void StepExecutor::gather_tables(const StepMessage& step, const TableMirror& mirror) {
  for (std::size_t g = 0; g < tables_.size(); ++g) {
    GroupTables& group = tables_[g];
    group.columns = 1;
    for (const StepSequence& sequence : step.sequences) {
      group.columns = std::max(group.columns, static_cast<std::int64_t>(mirror.table(sequence.request, g).size()));
    }
    group.entries.assign(step.sequences.size() * static_cast<std::size_t>(group.columns), 0);
    group.slots.clear();
    auto row = group.entries.begin();
    for (const StepSequence& sequence : step.sequences) {
      const auto table = mirror.table(sequence.request, g);
      std::transform(table.begin(), table.end(), row, [](std::uint32_t id) { return static_cast<std::int32_t>(id); });
      row += group.columns;
      group.slots.insert(group.slots.end(), sequence.slots[g].begin(), sequence.slots[g].end());
    }
  }
}

Status StepExecutor::upload_tables() {
  const Stopwatch watch(times_.attention);
  for (GroupTables& group : tables_) {
    const auto entries =
        options_.device->upload(group.entries_stage, group.entries.data(), group.entries.size() * sizeof(std::int32_t));
    if (!entries.ok()) return entries.status();
    const auto slots =
        options_.device->upload(group.slots_stage, group.slots.data(), group.slots.size() * sizeof(std::int64_t));
    if (!slots.ok()) return slots.status();
    group.device_entries = static_cast<const std::int32_t*>(*entries);
    group.device_slots = static_cast<const std::int64_t*>(*slots);
  }
  return {};
}

Status StepExecutor::make_plans() {
  const Stopwatch watch(times_.attention);
  plans_.clear();
  for (std::int64_t layer = 0; layer < model_.config().num_layers; ++layer) {
    const std::int64_t window = model_.config().sliding_windows[static_cast<std::size_t>(layer)];
    if (plans_.contains(window)) continue;
    const kernels::PagedKvView& view = storage_.view(layer);
    kernels::AttentionProblem problem;
    problem.num_query_heads = model_.slice().num_query_heads;
    problem.num_kv_heads = view.num_kv_heads;
    problem.head_dim = view.head_dim;
    problem.head_dim_v = view.head_dim_v;
    problem.page_size = view.page_size;
    problem.sliding_window = window;
    problem.fixed_split = options_.fixed_split;
    auto plan = kernels::AttentionPlan::make(problem, seq_lens_, cu_q_, options_.exec);
    if (!plan.ok()) return plan.error();
    plans_.emplace(window, *std::move(plan));
  }
  return {};
}

Status StepExecutor::copy_pages(const StepMessage& step) const {
  if (step.copies.empty()) return {};
  std::vector<kernels::PagePair> pairs;
  pairs.reserve(step.copies.size());
  for (const PageCopy& copy : step.copies) pairs.push_back({copy.source, copy.target});
  return kernels::copy_pages(storage_.views(), pairs, options_.exec);
}

Status StepExecutor::run_layer(std::int64_t layer) {
  {
    const Stopwatch watch(times_.projection);
    model_.project_qkv(layer, hidden_.data(), rows_, scratch_.data(), qkv_.data());
  }
  if (Status status = attend(layer); !status.ok()) return status;
  {
    const Stopwatch watch(times_.projection);
    model_.project_output(layer, attention_.data(), rows_, partial_.data());
  }
  {
    const Stopwatch watch(times_.communication);
    const auto elements = static_cast<std::size_t>(rows_ * model_.config().hidden_size);
    Status status =
        sum_over_ranks({partial_.data(), elements}, communicator_, *options_.device, sum_stage_, options_.deadline);
    if (!status.ok()) return status;
  }
  const Stopwatch watch(times_.projection);
  model_.add_residual(partial_.data(), rows_, hidden_.data());
  return {};
}

/// Appends the new keys and values and attends, where the pages are.
Status StepExecutor::attend(std::int64_t layer) {
  const Stopwatch watch(times_.attention);
  const std::int64_t head = model_.config().head_size;
  const std::int64_t stride = model_.qkv_width();
  const GroupTables& tables = tables_[storage_.group(layer)];
  const auto bytes_of = [this](std::int64_t width) { return static_cast<std::size_t>(rows_ * width) * sizeof(float); };
  const auto qkv = options_.device->upload(qkv_stage_, qkv_.data(), bytes_of(stride));
  if (!qkv.ok()) return qkv.status();
  const auto out = options_.device->place_for(attention_stage_, attention_.data(), bytes_of(model_.query_width()));
  if (!out.ok()) return out.status();
  const auto* q = static_cast<const float*>(*qkv);
  const float* k = q + model_.query_width();
  const kernels::NewRows rows{{k, DType::float32, stride, head}, {k + model_.kv_width(), DType::float32, stride, head}};
  const auto ignored = kernels::append(storage_.view(layer), {}, rows, tables.device_slots, rows_, options_.exec);
  if (!ignored.ok()) return ignored.error();
  if (*ignored != 0) {
    return {ErrorCode::layout_mismatch,
            fmt::format("{} slots lie outside the {} blocks of this rank", *ignored, storage_.num_blocks())};
  }
  kernels::AttentionArgs args;
  args.kv = storage_.view(layer);
  args.table = {tables.device_entries, tables.columns, tables.columns};
  args.q = {q, DType::float32, stride, head};
  args.out = kernels::dense_output(*out, DType::float32, model_.slice().num_query_heads, head);
  const std::int64_t window = model_.config().sliding_windows[static_cast<std::size_t>(layer)];
  if (Status status = plans_.at(window).run(args); !status.ok()) return status;
  return options_.device->download(attention_.data(), *out, bytes_of(model_.query_width()));
}

void StepExecutor::collect(std::int64_t layer, StepOutputs& outputs) const {
  const std::int64_t width = model_.query_width();
  for (std::size_t i = 0; i < output_rows_.size(); ++i) {
    const std::int64_t place = static_cast<std::int64_t>(i) * model_.config().num_layers + layer;
    std::copy_n(attention_.data() + output_rows_[i] * width, width, outputs.heads.data() + place * width);
  }
}

}  // namespace kvpool::launch
