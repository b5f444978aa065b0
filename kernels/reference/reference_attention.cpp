// The definition of attention in double precision, read off the contract line by line. No tiles, no splits, no tricks.
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dtype_dispatch.hpp"
#include "kernels/latent_format.hpp"
#include "kernels/plan_impl.hpp"

namespace kvpool::kernels {
namespace {

template <class T>
const T* row_at(const PagedRows& rows, std::int64_t page, std::int64_t token, std::int64_t head) {
  return static_cast<const T*>(rows.data) + row_offset(rows, page, token, head);
}

template <class T>
double element(const T* row, std::int64_t d) {
  return static_cast<double>(to_float(row[d]));
}
/// Bytes: an fp8 row of latent attention.
double element(const std::byte* row, std::int64_t d) { return latent_element(row, d); }

/// Calls f with the type by which rows of the cache are addressed.
template <class F>
void with_row_type(DType type, F&& f) {
  if (type == DType::uint8) return f(TypeTag<std::byte>{});
  with_cache_type(type, f);
}

class ReferencePlan final : public AttentionPlan::Impl {
 public:
  using Impl::Impl;

  Status run(const AttentionArgs& args) override {
    if (Status status = check_pages(step_, args); !status) return status;
    with_row_type(args.kv.dtype, [&](auto cache) {
      with_compute_type(args.q.dtype, [&](auto query) {
        using Cache = typename decltype(cache)::type;
        using Query = typename decltype(query)::type;
        for (std::int64_t b = 0; b < step_.num_sequences(); ++b)
          for (std::int64_t i = 0; i < step_.q_len(b); ++i)
            for (std::int64_t h = 0; h < step_.problem.num_query_heads; ++h) attend<Cache, Query>(args, b, i, h);
      });
    });
    return {};
  }

  [[nodiscard]] std::int64_t num_work_items() const noexcept override {
    return step_.num_tokens() * step_.problem.num_query_heads;
  }
  [[nodiscard]] std::int64_t num_partials() const noexcept override { return 0; }

 private:
  template <class Cache, class Query>
  double logit(const AttentionArgs& args, const Query* q, const Cache* k, double k_scale, std::int64_t head,
               std::int64_t distance) const {
    double dot = 0;
    for (std::int64_t d = 0; d < args.kv.head_dim; ++d) dot += static_cast<double>(to_float(q[d])) * element(k, d);
    double s = static_cast<double>(logit_scale(args)) * dot * k_scale;
    const auto cap = static_cast<double>(args.rules.soft_cap);
    if (cap > 0) s = cap * std::tanh(s / cap);
    if (!args.rules.alibi_slopes.empty())
      s += static_cast<double>(args.rules.alibi_slopes[static_cast<std::size_t>(head)]) * static_cast<double>(distance);
    return s;
  }

  template <class Cache, class Query>
  void attend(const AttentionArgs& args, std::int64_t b, std::int64_t i, std::int64_t head) const {
    const std::int64_t token = step_.first_token(b) + i;
    const std::int64_t kv_head = head / step_.group();
    const HeadScales scales = head_scales(args.scales, args.kv, kv_head);
    const std::int64_t position = step_.position(b, i);
    const std::int64_t first = step_.len(b) == 0 ? 0 : step_.first_key(position);
    const std::int64_t end = step_.len(b) == 0 ? 0 : position + 1;
    const auto* q = static_cast<const Query*>(args.q.data) + token * args.q.token_stride + head * args.q.head_stride;
    const std::int32_t* pages = args.table.entries + b * args.table.row_stride;

    std::vector<double> logits;
    double max = -std::numeric_limits<double>::infinity();
    bool nan = false;
    for (std::int64_t j = first; j < end; ++j) {
      const auto* k = row_at<Cache>(args.kv.k, pages[j / args.kv.page_size], j % args.kv.page_size, kv_head);
      logits.push_back(logit(args, q, k, static_cast<double>(scales.k), head, j - position));
      nan = nan || std::isnan(logits.back());
      if (logits.back() > max) max = logits.back();
    }
    const bool sink = !args.rules.sinks.empty() && !logits.empty();
    const double sink_logit = sink ? static_cast<double>(args.rules.sinks[static_cast<std::size_t>(head)]) : max;
    if (sink && sink_logit > max) max = sink_logit;
    const double base = std::isinf(max) && max < 0 ? 0 : max;
    double sum = sink ? std::exp(sink_logit - base) : 0;
    std::vector<double> out(static_cast<std::size_t>(args.kv.head_dim_v), 0.0);
    for (std::int64_t j = first; j < end; ++j) {
      const double p = std::exp(logits[static_cast<std::size_t>(j - first)] - base);
      sum += p;
      const auto* v = row_at<Cache>(args.kv.v, pages[j / args.kv.page_size], j % args.kv.page_size, kv_head);
      for (std::size_t d = 0; d < out.size(); ++d) out[d] += p * element(v, static_cast<std::int64_t>(d));
    }
    const bool empty = !nan && sum == 0;
    for (double& x : out) x = empty ? 0 : x / sum * static_cast<double>(scales.v);
    store(args, token, head, out, empty ? -std::numeric_limits<double>::infinity() : base + std::log(sum));
  }

  void store(const AttentionArgs& args, std::int64_t token, std::int64_t head, const std::vector<double>& out,
             double lse) const {
    const std::int64_t at = token * args.out.token_stride + head * args.out.head_stride;
    with_compute_type(args.out.dtype, [&](auto result) {
      using Result = typename decltype(result)::type;
      auto* row = static_cast<Result*>(args.out.data) + at;
      for (std::size_t d = 0; d < out.size(); ++d) row[d] = stored_form<Result>(static_cast<float>(out[d]), 1.0F);
    });
    if (args.lse != nullptr) args.lse[token * step_.problem.num_query_heads + head] = static_cast<float>(lse);
  }
};

}  // namespace

PlanResult make_reference_plan(StepInput step) {
  return std::unique_ptr<AttentionPlan::Impl>(std::make_unique<ReferencePlan>(std::move(step)));
}

}  // namespace kvpool::kernels
