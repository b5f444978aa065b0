// Ceilings and the bars of decode, append, copies and swap, as ratios to what the same device did in the same run.
#include <algorithm>
#include <chrono>

#include "kernels/cuda/attend_plan.hpp"
#include "kvpool/kernels/cache_ops.hpp"
#include "tools/gpu_check/decode_shape.hpp"
#include "tools/gpu_check/steps.hpp"

namespace kvpool::gpu_check {
namespace {

using namespace kernels;

constexpr std::size_t kReadBytes = std::size_t{4} << 30;
constexpr std::size_t kHostBytes = std::size_t{1} << 30;

struct Ceilings {
  double read = 0;  ///< bytes a second, all of them
  double copy = 0;
  double to_host = 0;
  double to_device = 0;
};

Ceilings measure_ceilings() {
  Ceilings c;
  const DeviceBytes from(kReadBytes);
  const DeviceBytes to(kReadBytes);
  const DeviceBytes sink(16);
  const PinnedBytes host(kHostBytes);
  launch_fill(from.as(), kReadBytes, 1, nullptr);
  must(cudaMemset(sink.as(), 0, 16), "cudaMemset");
  const auto rate = [](std::size_t bytes, const Timing& t) { return static_cast<double>(bytes) / t.median; };
  c.read =
      rate(kReadBytes, time_on_device(nullptr, [&](int) { launch_read(from.as(), kReadBytes, sink.as(), nullptr); }));
  const auto copy = [&](void* target, const void* source, std::size_t bytes, int repeats) {
    return rate(
        bytes,
        time_on_device(
            nullptr, [&](int) { must(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, nullptr), "a copy"); },
            repeats, 2));
  };
  c.copy = copy(to.as(), from.as(), kReadBytes, 15);
  c.to_host = copy(host.data(), from.as(), kHostBytes, 5);
  c.to_device = copy(from.as(), host.data(), kHostBytes, 5);
  return c;
}

void report_ceilings(Report& report, const Ceilings& c, const std::string& when) {
  report.info("R, read of 4 GiB, " + when, c.read * 1e-12, "TB/s");
  report.info("device copy, payload, " + when, c.copy * 1e-12, "TB/s");
  report.info("pinned copy to host, " + when, c.to_host * 1e-9, "GB/s");
  report.info("pinned copy to device, " + when, c.to_device * 1e-9, "GB/s");
}

Timing time_shape(const DecodeShape& shape) { return DecodeBench(shape).time(); }

std::string spread(const Timing& t) {
  char text[96];
  std::snprintf(text, sizeof(text), "%.1f us, p10 %.1f, p90 %.1f", t.median * 1e6, t.p10 * 1e6, t.p90 * 1e6);
  return text;
}

/// Time of each shape stays in the rows as "peer B L us" for the peer script.
double bar_of_read(Report& report, const DecodeShape& shape, double read, double floor, double good) {
  const Timing t = time_shape(shape);
  report.bar(shape.name + " / R", shape.kv_bytes() / t.median / read, "", floor, good, Better::higher, spread(t));
  report.info("peer " + std::to_string(shape.seq_lens.size()) + " " + std::to_string(shape.seq_lens[0]), t.median * 1e6,
              "us");
  return t.median;
}

void measure_decode(Report& report, double read) {
  const double base = bar_of_read(report, uniform("decode bf16 64 x 8k", 64, 8192), read, 0.80, 0.90);
  bar_of_read(report, uniform("decode bf16 8 x 32k", 8, 32768), read, 0.75, 0.88);
  bar_of_read(report, uniform("decode bf16 32 x 4k", 32, 4096), read, 0.70, 0.85);
  bar_of_read(report, uniform("decode bf16 1 x 32k", 1, 32768), read, 0.50, 0.68);
  bar_of_read(report, uniform("decode bf16 1 x 128k", 1, 131072), read, 0.65, 0.80);

  DecodeShape skewed = uniform("", 64, 0);  // the same total, one sequence eight times the mean
  const int rest = (64 * 8192 - 65536) / 63;
  for (std::int32_t& len : skewed.seq_lens) len = rest;
  skewed.seq_lens[20] = 64 * 8192 - 63 * rest;
  report.bar("rate, skewed lengths / uniform", base / time_shape(skewed).median, "", 0.80, 0.93, Better::higher);

  DecodeShape wide = uniform("", 64, 8192);
  wide.group = 8;
  report.bar("rate, group 8 / group 4", base / time_shape(wide).median, "", 0.85, 0.97, Better::higher);
  DecodeShape narrow = uniform("", 64, 8192);
  narrow.group = 1;
  report.info("rate, group 1 / group 4", base / time_shape(narrow).median, "");

  DecodeShape fp8 = uniform("", 64, 8192);
  fp8.cache = DType::fp8_e4m3;
  report.bar("time, fp8 / bf16", time_shape(fp8).median / base, "", 0.75, 0.58, Better::lower);

  DecodeShape large = uniform("", 64, 8192);
  large.page_size = 128;
  report.bar("rate, page 16 / page 128", time_shape(large).median / base, "", 0.93, 0.98, Better::higher);
  DecodeShape hnd = uniform("", 64, 8192);
  hnd.layout = CacheLayout::hnd;
  report.bar("rate, NHD / HND", time_shape(hnd).median / base, "", 0.93, 0.98, Better::higher);

  const Timing merge = DecodeBench(uniform("", 64, 8192)).time_merge();
  report.bar("share of the merge at 64 x 8k", merge.median / base, "", 0.05, 0.02, Better::lower, spread(merge));
}

/// Copies on one pool of `layers` bf16 views of 32 KiB pages for K and for V.
struct CopyPool {
  explicit CopyPool(std::int64_t pages)
      : shape{DType::bfloat16, pages, 16, 8, 128, 128},
        k(static_cast<std::size_t>(pages) * kPageBytes),
        v(k.size()),
        view(contiguous_kv_view(shape, CacheLayout::nhd, k.as(), v.as())) {
    launch_fill(k.as(), k.size(), 4, nullptr);
    launch_fill(v.as(), v.size(), 5, nullptr);
  }
  static constexpr std::size_t kPageBytes = 16 * 8 * 128 * 2;
  KvShape shape;
  DeviceBytes k;
  DeviceBytes v;
  PagedKvView view;
};

ExecOptions on_device(cudaStream_t stream) {
  ExecOptions exec;
  exec.backend = Backend::cuda;
  exec.stream = stream;
  return exec;
}

void measure_append(Report& report, double copy_rate) {
  constexpr std::int64_t kTokens = 8192;
  const CopyPool pool(8192);
  const std::size_t bytes = kTokens * 8 * 128 * 2;
  const DeviceBytes rows(2 * bytes);
  launch_fill(rows.as(), rows.size(), 6, nullptr);
  std::vector<std::int64_t> slots;
  for (std::int64_t i = 0; i < kTokens; ++i) slots.push_back((i * 7919) % (8192 * 16));
  const DeviceBytes device_slots(slots.data(), slots.size() * 8);
  const NewRows fresh{dense_queries(rows.as(), DType::bfloat16, 8, 128),
                      dense_queries(rows.as(bytes), DType::bfloat16, 8, 128)};
  const Timing t = time_on_device(nullptr, [&](int) {
    (void)append(pool.view, {}, fresh, device_slots.as<std::int64_t>(), kTokens, on_device(nullptr));
  });
  report.bar("append of 8k tokens / device copy", 2.0 * static_cast<double>(bytes) / t.median / copy_rate, "", 0.5, 0.7,
             Better::higher, spread(t));
}

void measure_page_copies(Report& report, double copy_rate) {
  constexpr std::int64_t kPairs = 8192;  // 512 MiB
  const CopyPool pool(2 * kPairs);
  std::vector<PagePair> pairs;
  for (std::int64_t i = 0; i < kPairs; ++i) pairs.push_back({(i * 7919) % kPairs, kPairs + (i * 4421) % kPairs});
  const Timing t = time_on_device(
      nullptr,
      [&](int) {
        (void)copy_pages({&pool.view, 1}, pairs, on_device(nullptr));
      },
      15);
  report.bar("block copies / device copy",
             2.0 * kPairs * static_cast<double>(CopyPool::kPageBytes) / t.median / copy_rate, "", 0.8, 0.92,
             Better::higher, spread(t));
}

void measure_swap(Report& report, const Ceilings& c) {
  constexpr std::int64_t kPages = 16384;  // 1 GiB of K and V
  const CopyPool pool(kPages);
  const PinnedBytes host_k(pool.k.size());
  const PinnedBytes host_v(pool.v.size());
  const PagedKvView store = contiguous_kv_view(pool.shape, CacheLayout::nhd, host_k.data(), host_v.data());
  std::vector<PagePair> pairs;
  for (std::int64_t i = 0; i < kPages; ++i) pairs.push_back({(i * 7919) % kPages, (i * 4421) % kPages});
  cudaStream_t stream = nullptr;
  must(cudaStreamCreate(&stream), "cudaStreamCreate");
  const double bytes = 2.0 * static_cast<double>(pool.k.size());
  const auto swap = [&](const PagedKvView& from, const PagedKvView& to) {
    return time_on_device(
        stream,
        [&](int) {
          (void)transfer_pages({&from, 1}, {&to, 1}, pairs, on_device(stream));
        },
        5, 1);
  };
  const Timing out = swap(pool.view, store);
  report.bar("swap out of 1 GiB / one pinned copy", bytes / out.median / c.to_host, "", 0.7, 0.9, Better::higher);
  const Timing in = swap(store, pool.view);
  report.bar("swap in of 1 GiB / one pinned copy", bytes / in.median / c.to_device, "", 0.7, 0.9, Better::higher);
  must(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

void measure_plan(Report& report) {
  AttentionProblem problem;
  problem.num_query_heads = 32;
  problem.num_kv_heads = 8;
  problem.head_dim = problem.head_dim_v = 128;
  const std::vector<std::int32_t> lens(256, 32768);
  const auto step = check_problem(problem, lens, {}, on_device(nullptr));
  std::vector<double> seconds;
  gpu::AttendPlan plan;
  for (int i = 0; i < 51; ++i) {
    const auto start = std::chrono::steady_clock::now();
    gpu::plan_attend(*step, 264, plan);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  report.bar("host plan for 256 x 32k", seconds[25] * 1e6, "us", 50, 15, Better::lower);
}

}  // namespace

void measure_bars(Report& report) {
  cudaDeviceProp properties{};
  must(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  report.info("device", std::string(properties.name), "", std::to_string(properties.multiProcessorCount) + " SMs");
  const Ceilings before = measure_ceilings();
  report_ceilings(report, before, "at the start");
  measure_plan(report);
  measure_decode(report, before.read);
  measure_append(report, before.copy);
  measure_page_copies(report, before.copy);
  measure_swap(report, before);
  const Ceilings after = measure_ceilings();
  report_ceilings(report, after, "at the end");
  report.info("R, end / start", after.read / before.read, "", "what differs by less is noise");
}

void run_for_profiler() {
  for (const DecodeShape& shape : {uniform("", 64, 8192), uniform("", 1, 32768)}) {
    DecodeBench bench(shape);
    bench.run_once(0);
    must(cudaDeviceSynchronize(), "a profiled step");
  }
}

}  // namespace kvpool::gpu_check
