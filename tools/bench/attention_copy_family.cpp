// Cache writes on the CPU against memcpy of the same bytes, and the time of a plan.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

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
  if (plan.wants("attention_plan")) {
    measure_plan(plan);
  }
}

}  // namespace kvpool::tools
