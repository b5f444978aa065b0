// The CPU plan: row blocks on threads, splits in order, results written once.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/row_states.hpp"
#include "kernels/cpu/row_task.hpp"
#include "kernels/cpu/thread_work.hpp"
#include "kernels/cpu/work_plan.hpp"
#include "kernels/dtype_dispatch.hpp"
#include "kernels/plan_impl.hpp"

namespace kvpool::kernels {
namespace {

constexpr std::int64_t kLineFloats = 16;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

/// Floats that start on a cache line: a vector load must not straddle two. Grows; contents do not survive growing.
class AlignedFloats {
 public:
  void grow(std::int64_t count) {
    if (count <= size_) return;
    memory_.reset(static_cast<float*>(::operator new(static_cast<std::size_t>(count) * sizeof(float), kLine)));
    size_ = count;
  }
  [[nodiscard]] float* data() const noexcept { return memory_.get(); }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(float* memory) const noexcept { ::operator delete(memory, kLine); }
  };
  std::unique_ptr<float, Free> memory_;
  std::int64_t size_ = 0;
};

/// Memory of one thread; grows to the largest block it has seen and is used again.
struct Scratch {
  AlignedFloats q;  ///< of all heads of the item
  AlignedFloats scores;
  AlignedFloats expanded;  ///< a tile of latent rows
  AlignedFloats fresh;     ///< states of the split at hand
  AlignedFloats total;     ///< states of the splits before it
  std::vector<RowKeys> keys;
  std::vector<float> scale;
};

/// What is the same for every item of one run.
struct LayerCall {
  const AttentionArgs& args;
  const TierKernels& kernels;
  bool bf16_queries;
  std::vector<std::int32_t> q_order;
  std::vector<std::int32_t> v_order;
  std::int64_t q_stride;
  std::int64_t acc_stride;
  float scale;
  std::int64_t heads_together;  ///< KV heads of an item
  std::int64_t head_groups;
};

/// KV heads of one item, which walk the pages together.
struct HeadRange {
  std::int64_t first;
  std::int64_t count;
};

HeadRows head_rows(const PagedRows& rows, DType type, std::int64_t head) {
  const std::int64_t bytes = element_bytes(type);
  return {static_cast<const std::byte*>(rows.data) + head * rows.head_stride * bytes, rows.page_stride * bytes,
          rows.token_stride * bytes, rows.head_stride * bytes};
}

/// Floats of the states of one head; every head starts on a cache line.
std::int64_t state_floats(std::int64_t padded_rows, std::int64_t acc_stride) {
  return round_up(RowStates::floats(padded_rows, acc_stride), kLineFloats);
}

class CpuPlan final : public AttentionPlan::Impl {
 public:
  CpuPlan(StepInput step, const TierKernels& kernels)
      : Impl(std::move(step)),
        kernels_(&kernels),
        threads_(thread_count(step_.exec.max_threads)),
        work_(plan_work(step_, threads_)) {}

  Status run(const AttentionArgs& args) override {
    if (Status status = check_pages(step_, args); !status) return status;
    const LayerCall call = prepare(args);
    const std::int64_t heads = step_.problem.num_kv_heads;
    if (work_.cut) partials_.grow(work_.first_slot.back() * heads * slot_floats(call));
    const auto items = static_cast<std::int64_t>(work_.items.size());
    const std::int64_t groups = call.head_groups;
    parallel_for(items * groups, step_.exec.max_threads, [&](std::int64_t i) {
      const std::int64_t first = i % groups * call.heads_together;
      const HeadRange range{first, std::min(call.heads_together, heads - first)};
      run_item(call, work_.items[static_cast<std::size_t>(i / groups)], range);
    });
    if (work_.cut) {
      const auto blocks = static_cast<std::int64_t>(work_.blocks.size());
      parallel_for(blocks * heads, step_.exec.max_threads,
                   [&](std::int64_t i) { merge_block(call, i / heads, i % heads); });
    }
    return {};
  }

  [[nodiscard]] std::int64_t num_work_items() const noexcept override {
    return static_cast<std::int64_t>(work_.items.size()) * step_.problem.num_kv_heads;
  }
  [[nodiscard]] std::int64_t num_partials() const noexcept override {
    return work_.cut ? work_.first_slot.back() * step_.problem.num_kv_heads : 0;
  }
  [[nodiscard]] std::optional<CpuTier> tier() const noexcept override { return kernels_->tier; }

 private:
  [[nodiscard]] LayerCall prepare(const AttentionArgs& args) const {
    const PagedKvView& kv = args.kv;
    const bool bf16 = kernels_->takes_bf16_queries(kv.dtype, args.q.dtype);
    LayerCall call{args,
                   *kernels_,
                   bf16,
                   {},
                   {},
                   round_up(kv.head_dim, kRowPad),
                   round_up(kv.head_dim_v, kRowPad),
                   logit_scale(args),
                   1,
                   1};
    call.heads_together = heads_together(kv, work_, threads_);
    call.head_groups = (kv.num_kv_heads + call.heads_together - 1) / call.heads_together;
    call.q_order.resize(static_cast<std::size_t>(kv.head_dim));
    call.v_order.resize(static_cast<std::size_t>(kv.head_dim_v));
    kernels_->element_order(kv.dtype, bf16, kv.head_dim, call.q_order.data());
    kernels_->element_order(kv.dtype, false, kv.head_dim_v, call.v_order.data());
    return call;
  }

  /// Floats of the states of the largest block, for one split.
  [[nodiscard]] static std::int64_t slot_floats(const LayerCall& call) {
    return state_floats(kMaxTaskRows, call.acc_stride);
  }
  [[nodiscard]] float* slot(const LayerCall& call, std::int64_t index, std::int64_t head) {
    return partials_.data() + (index * step_.problem.num_kv_heads + head) * slot_floats(call);
  }

  [[nodiscard]] std::int64_t token_of(const RowBlock& block, std::int64_t row) const {
    return step_.first_token(block.sequence) + block.first_query + row / block.heads;
  }
  [[nodiscard]] std::int64_t head_of(const RowBlock& block, std::int64_t row, std::int64_t kv_head) const {
    return kv_head * step_.group() + block.first_head + row % block.heads;
  }

  void fill_keys(const LayerCall& call, const RowBlock& block, HeadRange heads, Scratch& scratch) const {
    const std::int64_t rows = block.rows();
    if (static_cast<std::int64_t>(scratch.keys.size()) < heads.count * rows)
      scratch.keys.resize(static_cast<std::size_t>(heads.count * rows));
    const auto& slopes = call.args.rules.alibi_slopes;
    for (std::int64_t i = 0; i < heads.count * rows; ++i) {
      const std::int64_t r = i % rows;
      const std::int64_t position = step_.position(block.sequence, block.first_query + r / block.heads);
      RowKeys keys{0, 0, position, 0, 0};
      if (step_.len(block.sequence) > 0) {
        keys.begin = step_.first_key(position);
        keys.end = position + 1;
      }
      if (!slopes.empty()) keys.slope = slopes[static_cast<std::size_t>(head_of(block, r, heads.first + i / rows))];
      if (keys.slope < 0) {
        keys.origin = keys.begin;
        keys.shift = static_cast<double>(keys.slope) * static_cast<double>(keys.begin - position);
      }
      scratch.keys[static_cast<std::size_t>(i)] = keys;
    }
  }

  /// The rows of one head at `place`, a multiple of the padded rows.
  void fill_queries(const LayerCall& call, const RowBlock& block, std::int64_t kv_head, std::int64_t place,
                    Scratch& scratch) const {
    const QueryRows& q = call.args.q;
    with_compute_type(q.dtype, [&](auto tag) {
      using Query = typename decltype(tag)::type;
      for (std::int64_t r = 0; r < block.rows(); ++r) {
        const auto* row = static_cast<const Query*>(q.data) + token_of(block, r) * q.token_stride +
                          head_of(block, r, kv_head) * q.head_stride;
        if constexpr (kIsBf16<Query>) {
          if (call.bf16_queries) {
            auto* out = reinterpret_cast<std::byte*>(scratch.q.data()) + (place + r) * call.q_stride * 2;
            for (std::size_t d = 0; d < call.q_order.size(); ++d)
              std::memcpy(out + call.q_order[d] * 2, &row[d].bits, sizeof(row[d].bits));
            continue;
          }
        }
        float* out = scratch.q.data() + (place + r) * call.q_stride;
        for (std::size_t d = 0; d < call.q_order.size(); ++d) out[call.q_order[d]] = to_float(row[d]);
      }
    });
  }

  [[nodiscard]] RowTask task_of(const LayerCall& call, const RowBlock& block, HeadRange heads, Scratch& scratch) const {
    const AttentionArgs& args = call.args;
    const std::int64_t padded = round_up(block.rows(), kRowBlock);
    fill_keys(call, block, heads, scratch);
    scratch.q.grow(heads.count * padded * call.q_stride);
    std::fill_n(scratch.q.data(), heads.count * padded * call.q_stride, 0.0F);
    for (std::int64_t h = 0; h < heads.count; ++h) fill_queries(call, block, heads.first + h, h * padded, scratch);
    scratch.scores.grow(heads.count * padded * kKeyTile);
    const bool latent = args.kv.dtype == DType::uint8;
    if (latent) scratch.expanded.grow(kKeyTile * kLatentTileRow);
    scratch.fresh.grow(heads.count * state_floats(padded, call.acc_stride));
    const RowStates fresh = RowStates::at(scratch.fresh.data(), padded, call.acc_stride);
    RowTask task{};
    task.k = head_rows(args.kv.k, args.kv.dtype, heads.first);
    task.v = head_rows(args.kv.v, args.kv.dtype, heads.first);
    task.pages = args.table.entries + block.sequence * args.table.row_stride;
    task.page_size = args.kv.page_size;
    task.dim = args.kv.head_dim;
    task.dim_v = args.kv.head_dim_v;
    task.heads = heads.count;
    task.rows = block.rows();
    task.keys = scratch.keys.data();
    task.q = scratch.q.data();
    task.q_stride = call.q_stride;
    scratch.scale.resize(static_cast<std::size_t>(heads.count));
    for (std::int64_t h = 0; h < heads.count; ++h)
      scratch.scale[static_cast<std::size_t>(h)] = call.scale * head_scales(args.scales, args.kv, heads.first + h).k;
    task.scale = scratch.scale.data();
    task.soft_cap = args.rules.soft_cap;
    task.alibi = !args.rules.alibi_slopes.empty();
    task.bf16_queries = call.bf16_queries;
    task.expanded = latent ? scratch.expanded.data() : nullptr;
    task.scores = scratch.scores.data();
    task.acc = fresh.acc;
    task.acc_stride = call.acc_stride;
    task.max = fresh.max;
    task.sum = fresh.sum;
    task.state_stride = state_floats(padded, call.acc_stride);
    return task;
  }

  /// Whether row r of the block has keys in a split, and whether it has any in the splits of the block before it.
  [[nodiscard]] bool has_keys(const RowKeys& keys, std::int64_t split) const {
    return keys.begin < (split + 1) * work_.split_size && keys.end > split * work_.split_size;
  }
  [[nodiscard]] bool starts_in(const RowKeys& keys, std::int64_t split) const {
    return keys.begin >= split * work_.split_size;
  }

  void take_in(const RowBlock& block, const RowKeys* keys, std::int64_t split, const RowStates& part,
               const RowStates& total) const {
    for (std::int64_t r = 0; r < block.rows(); ++r) {
      if (!has_keys(keys[r], split)) continue;
      if (starts_in(keys[r], split)) {
        copy_row(part, total, r);
      } else {
        fold_row(part, total, r);
      }
    }
  }

  void run_item(const LayerCall& call, const WorkItem& item, HeadRange heads) {
    thread_local Scratch scratch;
    const RowBlock& block = work_.blocks[static_cast<std::size_t>(item.block)];
    RowTask task = task_of(call, block, heads, scratch);
    const std::int64_t padded = round_up(block.rows(), kRowBlock);
    const std::int64_t stride = task.state_stride;
    scratch.total.grow(heads.count * stride);
    const std::int64_t last = task.keys[block.rows() - 1].end;
    task.ahead_end = std::min(item.end_split * work_.split_size, last);
    for (std::int64_t split = item.first_split; split < item.end_split; ++split) {
      task.begin = split * work_.split_size;
      task.end = std::min(task.begin + work_.split_size, last);
      kernels_->attend(call.args.kv.dtype, task);
      for (std::int64_t h = 0; h < heads.count; ++h) {
        const RowStates fresh = RowStates::at(scratch.fresh.data() + h * stride, padded, call.acc_stride);
        if (work_.cut) {
          const std::int64_t index = work_.first_slot[static_cast<std::size_t>(item.block)] + split - block.first_split;
          const RowStates part = RowStates::at(slot(call, index, heads.first + h), padded, call.acc_stride);
          for (std::int64_t r = 0; r < block.rows(); ++r) copy_row(fresh, part, r);
        } else {
          take_in(block, task.keys, split, fresh,
                  RowStates::at(scratch.total.data() + h * stride, padded, call.acc_stride));
        }
      }
    }
    if (work_.cut) return;
    for (std::int64_t h = 0; h < heads.count; ++h) {
      finish(call, block, task.keys + h * block.rows(),
             RowStates::at(scratch.total.data() + h * stride, padded, call.acc_stride), heads.first + h);
    }
  }

  void merge_block(const LayerCall& call, std::int64_t index, std::int64_t kv_head) {
    thread_local Scratch scratch;
    const RowBlock& block = work_.blocks[static_cast<std::size_t>(index)];
    fill_keys(call, block, {kv_head, 1}, scratch);
    const std::int64_t padded = round_up(block.rows(), kRowBlock);
    scratch.total.grow(RowStates::floats(padded, call.acc_stride));
    const RowStates total = RowStates::at(scratch.total.data(), padded, call.acc_stride);
    for (std::int64_t split = block.first_split; split < block.end_split; ++split) {
      const std::int64_t at = work_.first_slot[static_cast<std::size_t>(index)] + split - block.first_split;
      take_in(block, scratch.keys.data(), split, RowStates::at(slot(call, at, kv_head), padded, call.acc_stride),
              total);
    }
    finish(call, block, scratch.keys.data(), total, kv_head);
  }

  /// Normalises and writes; the sink joins the denominator here, once.
  void finish(const LayerCall& call, const RowBlock& block, const RowKeys* keys, const RowStates& total,
              std::int64_t kv_head) const {
    const AttentionArgs& args = call.args;
    const auto v_scale = static_cast<double>(head_scales(args.scales, args.kv, kv_head).v);
    for (std::int64_t r = 0; r < block.rows(); ++r) {
      const std::int64_t token = token_of(block, r);
      const std::int64_t head = head_of(block, r, kv_head);
      bool empty = keys[r].begin >= keys[r].end;
      double factor = 0;
      double lse = -std::numeric_limits<double>::infinity();
      if (!empty) {
        auto max = static_cast<double>(total.max[r]);
        auto sum = static_cast<double>(total.sum[r]);
        double weight = 1;
        const double sink = args.rules.sinks.empty()
                                ? -std::numeric_limits<double>::infinity()
                                : static_cast<double>(args.rules.sinks[static_cast<std::size_t>(head)]) - keys[r].shift;
        if (!std::isinf(sink) || sink > 0) {
          const double top = sink > max ? sink : max;
          weight = std::exp(max - top);
          sum = sum * weight + std::exp(sink - top);
          max = top;
        }
        empty = sum == 0;  // every logit is -infinity
        factor = weight / sum * v_scale;
        lse = max + std::log(sum) + keys[r].shift;
      }
      write_row(call, total.acc + r * total.stride, static_cast<float>(factor), empty, token, head);
      if (args.lse != nullptr) args.lse[token * step_.problem.num_query_heads + head] = static_cast<float>(lse);
    }
  }

  static void write_row(const LayerCall& call, const float* acc, float factor, bool empty, std::int64_t token,
                        std::int64_t head) {
    const OutputRows& out = call.args.out;
    with_compute_type(out.dtype, [&](auto tag) {
      using Value = typename decltype(tag)::type;
      auto* row = static_cast<Value*>(out.data) + token * out.token_stride + head * out.head_stride;
      for (std::size_t d = 0; d < call.v_order.size(); ++d)
        row[d] = stored_form<Value>(empty ? 0.0F : acc[call.v_order[d]] * factor, 1.0F);
    });
  }

  const TierKernels* kernels_;
  int threads_;
  WorkPlan work_;
  AlignedFloats partials_;
};

}  // namespace

PlanResult make_cpu_plan(StepInput step) {
  const CpuTier tier = step.exec.tier.value_or(best_tier());
  const TierKernels* kernels = kernels_of(tier);
  if (kernels == nullptr) {
    return Error{ErrorCode::unsupported, "the cpu tier " + std::string(to_string(tier)) +
                                             " is not available on this machine; the best is " +
                                             std::string(to_string(best_tier()))};
  }
  return std::unique_ptr<AttentionPlan::Impl>(std::make_unique<CpuPlan>(std::move(step), *kernels));
}

}  // namespace kvpool::kernels
