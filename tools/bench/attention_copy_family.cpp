// Cache writes on the CPU against memcpy of the same bytes, and the time of a plan.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "kvpool/kernels/latent_rows.hpp"
#include "tools/bench/attention_cache.hpp"
#include "tools/bench/bar_rounds.hpp"
#include "tools/bench/families.hpp"

namespace kvpool::tools {
namespace {

using kernels::CacheLayout;
using kernels::ExecOptions;

ExecOptions one_thread() {
  ExecOptions exec;
  exec.max_threads = 1;
  return exec;
}

CacheShape write_shape(const BenchPlan& plan, CacheLayout layout) {
  CacheShape shape;
  shape.layout = layout;
  shape.layers = 1;
  if (plan.smoke) {
    shape.length = 64;
  }
  return shape;
}

void must(const Status& status) {
  if (!status) {
    throw std::runtime_error(status.error().message);
  }
}

/// Half of the pages to the other half, pairs in random order, beside one memcpy of each half.
void measure_block_copy(const BenchPlan& plan) {
  const AttentionCache cache(write_shape(plan, CacheLayout::hnd));
  const kernels::PagedKvView& view = cache.layer(0);
  const std::int64_t half = cache.shape().pages() / 2;
  std::vector<kernels::PagePair> pairs;
  for (std::int64_t i = 0; i < half; ++i) {
    pairs.push_back({cache.table()[static_cast<std::size_t>(i)], cache.table()[static_cast<std::size_t>(half + i)]});
  }
  const std::int64_t bytes = half * cache.shape().page_bytes();
  const auto copy = [&] {
    for (void* data : {view.k.data, view.v.data}) {
      std::memcpy(static_cast<std::byte*>(data) + bytes, data, static_cast<std::size_t>(bytes));
    }
  };
  const BarTimes times = run_rounds(plan, {copy, [&] { must(kernels::copy_pages({&view, 1}, pairs, one_thread())); }});
  plan.report->add(bar_row({"attention_block_copy", "memcpy", 1, 0.65, 0.80, static_cast<double>(2 * bytes)},
                           times.seconds[0], times.seconds[1], times.reliable));
}

struct AppendBar {
  const char* name;
  CacheLayout layout;
  bool whole_pages;
  double floor;
  double good;
};

constexpr AppendBar kAppendBars[] = {
    {"attention_append_pages", CacheLayout::hnd, true, 0.70, 0.85},
    {"attention_append_tokens_hnd", CacheLayout::hnd, false, 0.30, 0.45},
    {"attention_append_tokens_nhd", CacheLayout::nhd, false, 0.30, 0.45},
};

/// Rows of the cache's own type, as a step hands them over, to whole shuffled pages or to random slots.
void measure_append(const BenchPlan& plan, const AppendBar& bar) {
  const AttentionCache cache(write_shape(plan, bar.layout));
  const CacheShape& shape = cache.shape();
  const std::int64_t tokens = shape.pages() / 2 * shape.page_size;
  const std::int64_t row = shape.kv_heads * shape.dim;
  std::vector<std::int64_t> slots(static_cast<std::size_t>(tokens));
  for (std::int64_t t = 0; t < tokens; ++t) {
    slots[static_cast<std::size_t>(t)] =
        cache.table()[static_cast<std::size_t>(t / shape.page_size)] * shape.page_size + t % shape.page_size;
  }
  if (!bar.whole_pages) {
    std::shuffle(slots.begin(), slots.end(), std::mt19937(3));
  }
  const std::vector<std::uint16_t> fresh(static_cast<std::size_t>(2 * tokens * row), 0x3F80);
  const kernels::NewRows rows{
      kernels::dense_queries(fresh.data(), shape.dtype, shape.kv_heads, shape.dim),
      kernels::dense_queries(fresh.data() + tokens * row, shape.dtype, shape.kv_heads, shape.dim)};
  const auto bytes = static_cast<std::size_t>(tokens * row) * sizeof(fresh[0]);
  const auto copy = [&] {
    std::memcpy(cache.layer(0).k.data, fresh.data(), bytes);
    std::memcpy(cache.layer(0).v.data, fresh.data() + tokens * row, bytes);
  };
  const auto append = [&] {
    must(kernels::append(cache.layer(0), {}, rows, slots.data(), tokens, one_thread()).status());
  };
  const BarTimes times = run_rounds(plan, {copy, append});
  plan.report->add(bar_row({bar.name, "memcpy", 1, bar.floor, bar.good, static_cast<double>(2 * bytes)},
                           times.seconds[0], times.seconds[1], times.reliable));
}

/// Appends that cast bf16 to e4m3, tokens in order: memory is not the limit here, so that there is no bar, only the
/// rate.
void measure_quantising_append(const BenchPlan& plan) {
  CacheShape shape = write_shape(plan, CacheLayout::nhd);
  shape.dtype = DType::fp8_e4m3;
  shape.length = std::min<std::int64_t>(shape.length, 512);
  const AttentionCache cache(shape);
  const std::int64_t tokens = shape.pages() * shape.page_size;
  std::vector<std::int64_t> slots(static_cast<std::size_t>(tokens));
  std::iota(slots.begin(), slots.end(), 0);
  std::vector<std::uint16_t> fresh(static_cast<std::size_t>(tokens * shape.kv_heads * shape.dim));
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    fresh[i] = cache.queries()[i % cache.queries().size()];
  }
  const kernels::QueryRows rows = kernels::dense_queries(fresh.data(), DType::bfloat16, shape.kv_heads, shape.dim);
  const float scale[] = {0.02F};
  const std::size_t bytes = fresh.size() * sizeof(fresh[0]);
  std::vector<std::uint16_t> copy(fresh.size());
  const BarTimes times = run_rounds(
      plan, {[&] {
               std::memcpy(copy.data(), fresh.data(), bytes);
               std::memcpy(copy.data(), fresh.data(), bytes);
             },
             [&] {
               must(kernels::append(cache.layer(0), {scale, scale, 0}, {rows, rows}, slots.data(), tokens, one_thread())
                        .status());
             }});
  plan.report->add(bar_row({"attention_append_fp8", "memcpy", 1, 0, 0, static_cast<double>(2 * bytes)},
                           times.seconds[0], times.seconds[1], times.reliable));
}

/// Decode over the fp8 rows of latent attention, in place, beside expanding them and decode over the result.
void measure_latent(const BenchPlan& plan) {
  constexpr std::int64_t kDim = kernels::kLatentDim + kernels::kLatentRopeDim;
  constexpr std::int64_t kHeads = 16;
  const std::int64_t length = plan.smoke ? 64 : 32'768;
  kernels::LatentPages pages;
  pages.page_size = 64;
  pages.num_pages = length / pages.page_size;
  pages.page_stride = pages.page_size * pages.token_stride;
  std::vector<std::byte> memory(static_cast<std::size_t>(pages.num_pages * pages.page_stride));
  pages.data = memory.data();
  std::vector<std::int32_t> table(static_cast<std::size_t>(pages.num_pages));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(5));
  std::vector<std::int64_t> slots(static_cast<std::size_t>(length));
  std::iota(slots.begin(), slots.end(), 0);
  std::vector<float> rows(static_cast<std::size_t>(length * kDim));
  std::mt19937 random(7);
  for (float& value : rows) {
    value = static_cast<float>(random() % 2'001) * 1e-3F - 1;
  }
  must(kernels::append_latent(pages, {rows.data(), DType::float32, kDim, 0},
                              {rows.data() + kernels::kLatentDim, DType::float32, kDim, 0}, slots)
           .status());
  std::vector<float> out(static_cast<std::size_t>(kHeads * kernels::kLatentDim));
  const std::int32_t lens[] = {static_cast<std::int32_t>(length)};
  kernels::AttentionProblem problem{kHeads, 1, kDim, kernels::kLatentDim, pages.page_size, 0, 0};
  kernels::AttentionArgs args;
  args.q = kernels::dense_queries(rows.data(), DType::float32, kHeads, kDim);
  args.out = kernels::dense_output(out.data(), DType::float32, kHeads, kernels::kLatentDim);
  const auto in_place = [&] {
    args.kv = kernels::latent_view(pages);
    args.table = {table.data(), pages.num_pages, pages.num_pages};
    must(kernels::paged_attention(problem, lens, {}, args, one_thread()));
  };
  std::vector<std::int32_t> in_order(table.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  const auto expanded = [&] {
    must(kernels::expand_latent(pages, table, length, rows.data(), DType::float32));
    args.kv = kernels::contiguous_kv_view({DType::float32, pages.num_pages, pages.page_size, 1, kDim, 0},
                                          CacheLayout::nhd, rows.data(), rows.data());
    args.kv.head_dim_v = kernels::kLatentDim;
    args.table = {in_order.data(), pages.num_pages, pages.num_pages};
    must(kernels::paged_attention(problem, lens, {}, args, one_thread()));
  };
  const BarTimes times = run_rounds(plan, {expanded, in_place});
  plan.report->add(bar_row({"attention_latent_fp8", "expansion first", 1, 0, 0, static_cast<double>(memory.size())},
                           times.seconds[0], times.seconds[1], times.reliable));
}

/// Time of one plan for 256 sequences of 32k tokens. No ratio: the bar is at most 50 us, good at most 15 us.
void measure_plan(const BenchPlan& plan) {
  kernels::AttentionProblem problem;
  problem.num_query_heads = 32;
  problem.num_kv_heads = 8;
  problem.head_dim = problem.head_dim_v = 128;
  const std::vector<std::int32_t> lens(256, 32'768);
  constexpr int kPlans = 200;
  const BarTimes times = run_rounds(plan, {[&] {
                                      for (int i = 0; i < kPlans; ++i) {
                                        must(kernels::AttentionPlan::make(problem, lens, {}, {}).status());
                                      }
                                    }});
  BenchRow row;
  row.name = "attention_plan";
  row.pool = "kvpool";
  row.reliable = times.reliable;
  row.more["us"] = median(times.seconds[0]) / kPlans * 1e6;
  row.more["floor"] = 50;
  row.more["good"] = 15;
  plan.report->add(std::move(row));
}

}  // namespace

void bench_attention_copies(const BenchPlan& plan) {
  if (plan.wants("attention_block_copy")) {
    measure_block_copy(plan);
  }
  for (const AppendBar& bar : kAppendBars) {
    if (plan.wants(bar.name)) {
      measure_append(plan, bar);
    }
  }
  if (plan.wants("attention_append_fp8")) {
    measure_quantising_append(plan);
  }
  if (plan.wants("attention_latent_fp8")) {
    measure_latent(plan);
  }
  if (plan.wants("attention_plan")) {
    measure_plan(plan);
  }
}

}  // namespace kvpool::tools
