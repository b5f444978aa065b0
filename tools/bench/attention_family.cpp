// Decode on the CPU against the memory limit: bars of cache type, layout, threads, splitting and instruction set.
#include <algorithm>
#include <memory>
#include <thread>

#include "tools/bench/attention_rivals.hpp"
#include "tools/bench/bar_rounds.hpp"
#include "tools/bench/families.hpp"

namespace kvpool::tools {
namespace {

using kernels::CacheLayout;
using kernels::CpuTier;
using kernels::ExecOptions;

/// A value that the compiler must take for used.
void keep(std::uint64_t value) { asm volatile("" : : "r"(value)); }

ExecOptions on_threads(unsigned threads) {
  ExecOptions exec;
  exec.max_threads = static_cast<int>(threads);
  return exec;
}

struct DecodeBar {
  const char* name;
  DType dtype;
  CacheLayout layout;
  std::int64_t group;
  std::int64_t layers;
  double floor;  ///< 0: a figure without a bar
  double good;
};

constexpr DecodeBar kDecodeBars[] = {
    {"attention_decode_fp32_hnd", DType::float32, CacheLayout::hnd, 4, 2, 0.80, 0.92},
    {"attention_decode_bf16_hnd", DType::bfloat16, CacheLayout::hnd, 4, 2, 0.75, 0.88},
    {"attention_decode_bf16_nhd", DType::bfloat16, CacheLayout::nhd, 4, 2, 0.60, 0.80},
    {"attention_decode_fp16_hnd", DType::float16, CacheLayout::hnd, 4, 2, 0.65, 0.80},
    {"attention_decode_fp8_hnd", DType::fp8_e4m3, CacheLayout::hnd, 4, 4, 0.40, 0.60},
    {"attention_decode_group_1", DType::bfloat16, CacheLayout::hnd, 1, 2, 0, 0},
    {"attention_decode_group_8", DType::bfloat16, CacheLayout::hnd, 8, 2, 0, 0},
};

CacheShape shape_of(const BenchPlan& plan, const DecodeBar& bar) {
  CacheShape shape;
  shape.dtype = bar.dtype;
  shape.layout = bar.layout;
  shape.group = bar.group;
  shape.layers = plan.smoke ? 1 : bar.layers;
  if (plan.smoke) {
    shape.length = 64;
  }
  return shape;
}

/// Decode beside the read, with one and with two threads, and how both gain from the second one.
void measure_decode(const BenchPlan& plan, const DecodeBar& bar, AttentionCache& cache) {
  const std::int64_t layers = cache.shape().layers;
  const auto bytes = static_cast<double>(layers * cache.shape().layer_bytes());
  const unsigned most = std::max(1U, std::min(2U, std::thread::hardware_concurrency()));
  std::vector<std::function<void()>> work;
  for (unsigned threads = 1; threads <= most; ++threads) {
    work.emplace_back([&, threads] { keep(read_pages(cache, layers, threads)); });
    work.emplace_back([&, threads] { cache.decode(on_threads(threads), layers); });
  }
  const BarTimes times = run_rounds(plan, work);
  const auto& s = times.seconds;
  for (unsigned threads = 1; threads <= most; ++threads) {
    const std::size_t at = (threads - 1) * 2;
    plan.report->add(
        bar_row({bar.name, "read", threads, bar.floor, bar.good, bytes}, s[at], s[at + 1], times.reliable));
  }
  if (most < 2 || bar.floor == 0) {
    return;
  }
  std::vector<double> read_gain;
  std::vector<double> decode_gain;
  for (std::size_t i = 0; i < s[0].size(); ++i) {
    read_gain.push_back(s[0][i] / s[2][i]);
    decode_gain.push_back(s[1][i] / s[3][i]);
  }
  plan.report->add(bar_row({std::string(bar.name) + "_gain", "read gain", 2, 0.75, 0.92, 0}, decode_gain, read_gain,
                           times.reliable));
}

/// A second thing to be fast against: plain loops, and the AVX2 tier against the read.
void measure_rivals(const BenchPlan& plan, AttentionCache& cache) {
  const auto bytes = static_cast<double>(cache.shape().layer_bytes());
  if (plan.wants("attention_plain_loops")) {
    const BarTimes times = run_rounds(plan, {[&] { plain_decode(cache, 1); }, [&] { cache.decode(on_threads(1), 1); }});
    plan.report->add(bar_row({"attention_plain_loops", "plain loops", 1, 5, 9, bytes}, times.seconds[0],
                             times.seconds[1], times.reliable));
  }
  if (plan.wants("attention_decode_avx2") && kernels::tier_available(CpuTier::avx2)) {
    ExecOptions exec = on_threads(1);
    exec.tier = CpuTier::avx2;
    const BarTimes times = run_rounds(plan, {[&] { keep(read_pages(cache, 1, 1)); }, [&] { cache.decode(exec, 1); }});
    plan.report->add(bar_row({"attention_decode_avx2", "read", 1, 0.35, 0.55, bytes}, times.seconds[0],
                             times.seconds[1], times.reliable));
  }
}

/// One long sequence with one KV head must be shared among the threads; many short ones need not be.
void measure_split(const BenchPlan& plan) {
  CacheShape many;
  many.kv_heads = 1;
  many.layers = plan.smoke ? 1 : 8;
  if (plan.smoke) {
    many.length = 64;
  }
  CacheShape one = many;
  one.sequences = 1;
  one.length = many.sequences * many.length;
  AttentionCache short_ones(many);
  AttentionCache long_one(one);
  const BarTimes times = run_rounds(plan, {[&] { short_ones.decode(on_threads(2), many.layers); },
                                           [&] { long_one.decode(on_threads(2), one.layers); }});
  plan.report->add(bar_row({"attention_one_long_sequence", "8 sequences", 2, 0.85, 0.95,
                            static_cast<double>(many.layers * many.layer_bytes())},
                           times.seconds[0], times.seconds[1], times.reliable));
}

}  // namespace

void bench_attention(const BenchPlan& plan) {
  for (const DecodeBar& bar : kDecodeBars) {
    const bool rivals = bar.dtype == DType::bfloat16 && bar.layout == CacheLayout::hnd && bar.group == 4 &&
                        (plan.wants("attention_plain_loops") || plan.wants("attention_decode_avx2"));
    if (!plan.wants(bar.name) && !rivals) {
      continue;
    }
    AttentionCache cache(shape_of(plan, bar));
    if (plan.wants(bar.name)) {
      measure_decode(plan, bar, cache);
    }
    if (rivals) {
      measure_rivals(plan, cache);
    }
  }
  if (plan.wants("attention_one_long_sequence") && std::thread::hardware_concurrency() > 1) {
    measure_split(plan);
  }
}

}  // namespace kvpool::tools
