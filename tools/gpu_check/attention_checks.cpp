// Attention on the device against the double reference, over shapes drawn at random and a few chosen ones.
#include <algorithm>
#include <random>

#include "kernels/cpu/thread_work.hpp"
#include "tools/gpu_check/correctness.hpp"
#include "tools/gpu_check/device_case.hpp"

namespace kvpool::gpu_check {
namespace {

using kernels::Backend;
using kernels::CacheLayout;
using kernels::test::AttentionCase;
using kernels::test::CaseSpec;
using kernels::test::Difference;
using kernels::test::kReference;
using kernels::test::Output;

constexpr kernels::CacheLayout kLayouts[] = {CacheLayout::nhd, CacheLayout::hnd};
constexpr DType kCaches[] = {DType::float16, DType::bfloat16, DType::fp8_e4m3, DType::fp8_e5m2};
constexpr DType kComputes[] = {DType::float32, DType::float16, DType::bfloat16};
constexpr std::int64_t kPages[] = {1, 8, 16, 32, 64, 128};
constexpr std::int64_t kDims[] = {64, 72, 96, 120, 128, 192, 256};
constexpr std::int64_t kGroups[] = {1, 2, 4, 5, 8, 16};
constexpr std::size_t kBigPool = std::size_t{20} << 30;  // each of K and V

template <class T, std::size_t N>
T pick(const T (&from)[N], std::mt19937& rng) {
  return from[rng() % N];
}

CaseSpec random_spec(std::mt19937& rng) {
  CaseSpec spec;
  spec.seed = static_cast<std::uint32_t>(rng());
  spec.cache = pick(kCaches, rng);
  spec.query = pick(kComputes, rng);
  spec.out = pick(kComputes, rng);
  spec.layout = pick(kLayouts, rng);
  spec.page_size = pick(kPages, rng);
  spec.kv_heads = 1 + static_cast<std::int64_t>(rng() % 3);
  spec.group = pick(kGroups, rng);
  spec.dim = pick(kDims, rng);
  if (spec.dim == 192) spec.dim_v = 128;
  if (kernels::is_fp8(spec.cache)) spec.k_scale = spec.v_scale = {0.04F};
  spec.seq_lens.clear();
  for (std::size_t b = 0; b < 1 + rng() % 4; ++b) {
    const auto len = static_cast<std::int32_t>(rng() % 3 == 0 ? rng() % 40 : rng() % 700);
    spec.seq_lens.push_back(len);
    spec.q_lens.push_back(std::min<std::int32_t>(len, static_cast<std::int32_t>(rng() % 2 == 0 ? 1 : 1 + rng() % 20)));
  }
  if (rng() % 2 == 0) spec.q_lens.clear();
  if (rng() % 4 == 0) spec.window = 1 + static_cast<std::int64_t>(rng() % 200);
  if (rng() % 4 == 0) spec.fixed_split = 128;
  if (rng() % 4 == 0) spec.soft_cap = 5.0F;
  spec.alibi = rng() % 4 == 0;
  spec.sinks = rng() % 4 == 0;
  return spec;
}

std::string describe(const CaseSpec& s) {
  std::string text = std::string(to_string(s.cache)) + " q " + std::string(to_string(s.query)) + " out " +
                     std::string(to_string(s.out)) + " page " + std::to_string(s.page_size) + " heads " +
                     std::to_string(s.kv_heads) + "x" + std::to_string(s.group) + " dim " + std::to_string(s.dim) +
                     " window " + std::to_string(s.window) + " seed " + std::to_string(s.seed);
  return text;
}

struct Tolerance {
  double rel_l2;
  double lse;
};

/// Weights go through 8 bits (bf16) or 11 (fp16) where tensor cores take them.
Tolerance tolerance_of(const CaseSpec& s) {
  const bool many_rows = s.group > 4 || !s.q_lens.empty();
  Tolerance t{many_rows ? 4e-3 : 1e-5, many_rows ? 1e-3 : 1e-5};
  if (s.out == DType::bfloat16) t.rel_l2 += 3e-3;
  if (s.out == DType::float16) t.rel_l2 += 1e-3;
  return t;
}

bool close(const AttentionCase& c, const Output& got, const Output& want, std::string& worst) {
  if (!got.status) {
    worst = got.status.error().message;
    return false;
  }
  const Difference d = difference(c, got, want);
  const Tolerance limit = tolerance_of(c.spec);
  if (d.rel_l2 <= limit.rel_l2 && d.lse <= limit.lse) return true;
  worst = describe(c.spec) + ": rel-L2 " + std::to_string(d.rel_l2) + ", LSE " + std::to_string(d.lse);
  return false;
}

void check_random(Report& report, int count) {
  std::mt19937 rng(20);
  std::vector<AttentionCase> cases;
  cases.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) cases.emplace_back(random_spec(rng));
  std::vector<Output> want(cases.size());
  for (AttentionCase& c : cases) {  // the vector moved them
    c.view.k.data = c.k_pool.data();
    c.view.v.data = c.v_pool.data();
  }
  kernels::parallel_for(static_cast<std::int64_t>(cases.size()), 0, [&](std::int64_t i) {
    want[static_cast<std::size_t>(i)] = run_case(cases[static_cast<std::size_t>(i)], kReference);
  });
  int right = 0;
  std::string worst;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    DeviceCase device(cases[i]);
    right += close(cases[i], device.run(), want[i], worst) ? 1 : 0;
  }
  report.check(std::to_string(count) + " random shapes against double", right == count,
               worst.empty() ? "" : std::to_string(count - right) + " wrong; " + worst);
}

bool same_bits(const Output& a, const Output& b) {
  return a.status.ok() && b.status.ok() && a.bytes == b.bytes &&
         std::equal(a.lse.begin(), a.lse.end(), b.lse.begin(), b.lse.end());
}

CaseSpec usual_spec() {
  CaseSpec spec;
  spec.cache = DType::bfloat16;
  spec.query = DType::bfloat16;
  spec.dim = 128;
  spec.group = 4;
  spec.seq_lens = {300, 17, 0, 1200};
  spec.fixed_split = 256;
  return spec;
}

void check_bits(Report& report, std::int64_t group) {
  const std::string label = ", group " + std::to_string(group);
  CaseSpec spec = usual_spec();
  spec.group = group;
  AttentionCase c(spec);
  DeviceCase device(c);
  const Output first = device.run();
  report.check("same input twice: same bits" + label, same_bits(first, device.run()));
  c.fill_unused_table_entries(0x7FFFFFF0);
  report.check("garbage in unused table entries: same bits" + label, same_bits(first, DeviceCase(c).run()));
  c.place_pages(77);
  report.check("pages permuted: same bits" + label, same_bits(first, DeviceCase(c).run()));
  spec.layout = CacheLayout::hnd;
  const AttentionCase other(spec);
  report.check("HND for NHD: same bits" + label, same_bits(first, DeviceCase(other).run()));
}

void check_far_pages(Report& report) {
  std::size_t free = 0;
  std::size_t total = 0;
  must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  if (free < 2 * kBigPool + (std::size_t{2} << 30)) {
    report.info("offsets above 2^32 bytes", "not run", "", "needs 42 GiB of free memory");
    return;
  }
  for (const std::int64_t group : {4, 8}) {
    CaseSpec spec = usual_spec();
    spec.group = group;
    const AttentionCase c(spec);
    const Output near = DeviceCase(c).run();
    DeviceCase device(c);
    device.spread_over(kBigPool);
    report.check("pages behind 2^32 bytes of a 40 GiB pool, group " + std::to_string(group),
                 same_bits(near, device.run()));
  }
}

void check_latent(Report& report) {
  for (const std::int64_t page : {16, 64}) {
    CaseSpec spec = kernels::test::latent_spec(page);
    spec.seq_lens = {1, 65, 500};
    const AttentionCase c(spec);
    std::string worst;
    const bool ok = close(c, DeviceCase(c).run(), run_case(c, kReference), worst);
    report.check("latent attention 576/512, page " + std::to_string(page), ok, worst);
  }
}

}  // namespace

void check_attention(Report& report, bool few) {
  check_random(report, few ? 18 : 280);
  check_latent(report);
  if (few) return;
  check_bits(report, 4);
  check_bits(report, 8);
  check_far_pages(report);
}

}  // namespace kvpool::gpu_check
