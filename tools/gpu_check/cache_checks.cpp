// Append, copies, swap, gather and merge on the device against the host backend, byte for byte.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kvpool/kernels/cache_ops.hpp"
#include "tests/kernels/attention_case.hpp"
#include "tools/gpu_check/correctness.hpp"
#include "tools/gpu_check/device_memory.hpp"

namespace kvpool::gpu_check {
namespace {

using namespace kernels;
using Bytes = std::vector<unsigned char>;

constexpr std::int64_t kPages = 12;
constexpr std::int64_t kHeads = 3;

ExecOptions on_device() {
  ExecOptions exec;
  exec.backend = Backend::cuda;
  return exec;
}
ExecOptions on_host() {
  ExecOptions exec;
  exec.backend = Backend::reference;
  return exec;
}

/// One pool twice: on the host and, with the same bytes, on the device.
struct TwinPool {
  TwinPool(KvShape s, CacheLayout layout, unsigned seed) : shape(s) {
    const auto bytes =
        static_cast<std::size_t>(s.num_pages * s.page_size * s.num_kv_heads * s.head_dim * element_bytes(s.dtype));
    k.resize(bytes);
    v.resize(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
      k[i] = static_cast<unsigned char>((i * 2654435761U + seed) >> 11U);
      v[i] = static_cast<unsigned char>((i * 40503U + seed) >> 7U);
    }
    dk = DeviceBytes(k.data(), bytes);
    dv = DeviceBytes(v.data(), bytes);
    host = contiguous_kv_view(shape, layout, k.data(), v.data());
    device = contiguous_kv_view(shape, layout, dk.as(), dv.as());
  }
  [[nodiscard]] bool equal() const {
    Bytes a(k.size());
    Bytes b(v.size());
    must(cudaDeviceSynchronize(), "a kernel");
    dk.download(a.data());
    dv.download(b.data());
    return a == k && b == v;
  }

  KvShape shape;
  Bytes k;
  Bytes v;
  DeviceBytes dk;
  DeviceBytes dv;
  PagedKvView host;
  PagedKvView device;
};

KvShape shape_of(DType type, std::int64_t dim) { return {type, kPages, 16, kHeads, dim, dim}; }

void check_append(Report& report) {
  for (const DType cache : {DType::float16, DType::bfloat16, DType::fp8_e4m3, DType::fp8_e5m2}) {
    for (const DType from : {DType::float32, DType::float16, DType::bfloat16}) {
      for (const std::int64_t dim : {128, 46}) {
        TwinPool pool(shape_of(cache, dim), dim == 46 ? CacheLayout::hnd : CacheLayout::nhd, 5);
        std::vector<float> values(static_cast<std::size_t>(7 * kHeads * dim));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.37F * static_cast<float>(i % 1999) - 300.0F;
        const Bytes rows = test::encode_rows(values, from);
        const std::int64_t slots[] = {3, kSkipSlot, 17, kPages * 16, 40, -7, kPages * 16 - 1};
        const DeviceBytes device_rows(rows.data(), rows.size());
        const DeviceBytes device_slots(slots, sizeof(slots));
        const std::vector<float> scale = {0.5F, 0.07F, 3.0F};
        const KvScales scales{scale, scale, 0};
        const QueryRows host_rows = dense_queries(rows.data(), from, kHeads, dim);
        const QueryRows rows_there = dense_queries(device_rows.as(), from, kHeads, dim);
        const bool done =
            append(pool.host, scales, {host_rows, host_rows}, slots, 7, on_host()).ok() &&
            append(pool.device, scales, {rows_there, rows_there}, device_slots.as<std::int64_t>(), 7, on_device()).ok();
        report.check("append " + std::string(to_string(from)) + " to " + std::string(to_string(cache)) + " dim " +
                         std::to_string(dim) + ", slots inside and outside",
                     done && pool.equal());
      }
    }
  }
  TwinPool pool(shape_of(DType::fp8_e4m3, 64), CacheLayout::nhd, 5);
  const std::int64_t slot = 0;
  const std::vector<float> bad = {std::numeric_limits<float>::quiet_NaN()};
  const DeviceBytes row(kHeads * 64 * 4);
  const QueryRows rows = dense_queries(row.as(), DType::float32, kHeads, 64);
  const bool refused = !append(pool.device, {bad, bad, 0}, {rows, rows}, &slot, 1, on_device()).ok();
  report.check("a NaN scale is refused and changes nothing", refused && pool.equal());
}

void check_copies(Report& report) {
  const PagePair pairs[] = {{0, 7}, {3, 1}, {0, 9}};
  for (const std::int64_t dim : {128, 46}) {
    TwinPool pool(shape_of(DType::bfloat16, dim), CacheLayout::nhd, 1);
    const bool done =
        copy_pages({&pool.host, 1}, pairs, on_host()).ok() && copy_pages({&pool.device, 1}, pairs, on_device()).ok();
    report.check("page copies, dim " + std::to_string(dim), done && pool.equal());

    TwinPool other(shape_of(DType::bfloat16, dim), CacheLayout::hnd, 2);
    const bool moved = transfer_pages({&pool.host, 1}, {&other.host, 1}, pairs, on_host()).ok() &&
                       transfer_pages({&pool.device, 1}, {&other.device, 1}, pairs, on_device()).ok();
    report.check("pages to a pool of the other layout, dim " + std::to_string(dim), moved && other.equal());
  }
}

void check_swap(Report& report) {
  const PagePair out_pairs[] = {{0, 7}, {3, 1}, {5, 2}};
  const PagePair in_pairs[] = {{7, 11}, {1, 0}, {2, 4}};
  cudaStream_t stream = nullptr;
  must(cudaStreamCreate(&stream), "cudaStreamCreate");
  for (void* const chosen : {static_cast<void*>(nullptr), static_cast<void*>(stream)}) {
    for (const bool pinned : {false, true}) {
      TwinPool pool(shape_of(DType::bfloat16, 128), CacheLayout::nhd, 3);
      TwinPool expected(shape_of(DType::bfloat16, 128), CacheLayout::nhd, 4);
      Bytes k = expected.k;
      Bytes v = expected.v;
      const PinnedBytes pinned_k(k.size());
      const PinnedBytes pinned_v(v.size());
      std::memcpy(pinned_k.data(), k.data(), k.size());
      std::memcpy(pinned_v.data(), v.data(), v.size());
      PagedKvView store = expected.host;
      store.k.data = pinned ? pinned_k.data() : k.data();
      store.v.data = pinned ? pinned_v.data() : v.data();
      ExecOptions exec = on_device();
      exec.stream = chosen;
      bool ok = transfer_pages({&pool.host, 1}, {&expected.host, 1}, out_pairs, on_host()).ok() &&
                transfer_pages({&pool.device, 1}, {&store, 1}, out_pairs, exec).ok();
      must(cudaDeviceSynchronize(), "a swap");
      ok = ok && std::memcmp(store.k.data, expected.k.data(), k.size()) == 0 &&
           std::memcmp(store.v.data, expected.v.data(), v.size()) == 0;
      const std::string label = std::string(pinned ? "pinned" : "pageable") + (chosen != nullptr ? ", stream" : "");
      report.check("swap out to " + label, ok);
      ok = transfer_pages({&expected.host, 1}, {&pool.host, 1}, in_pairs, on_host()).ok() &&
           transfer_pages({&store, 1}, {&pool.device, 1}, in_pairs, exec).ok();
      report.check("swap in from " + label, ok && pool.equal());
    }
  }
  must(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

void check_gather(Report& report) {
  for (const std::int64_t len : {1, 16, 37, 64}) {
    TwinPool pool(shape_of(DType::fp8_e4m3, 80), CacheLayout::hnd, 6);
    const std::int32_t pages[] = {5, 0, 9, 2};
    const auto bytes = static_cast<std::size_t>(len * kHeads * 80);
    Bytes k(bytes);
    Bytes v(bytes);
    Bytes got_k(bytes);
    Bytes got_v(bytes);
    const DeviceBytes dk(bytes);
    const DeviceBytes dv(bytes);
    const bool done = gather(pool.host, pages, len, k.data(), v.data(), on_host()).ok() &&
                      gather(pool.device, pages, len, dk.as(), dv.as(), on_device()).ok();
    must(cudaDeviceSynchronize(), "a gather");
    dk.download(got_k.data());
    dv.download(got_v.data());
    report.check("gather of " + std::to_string(len) + " tokens", done && k == got_k && v == got_v);
  }
}

void check_merge(Report& report) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> a = {1, 2, 3, 4, 9, 9, 9, 9};
  const std::vector<float> b = {5, 6, 7, 8, 5, 6, 9, 9};
  const std::vector<float> lse_a = {1.1F, 0.25F, -inf, -inf};
  const std::vector<float> lse_b = {-0.3F, -inf, 0.5F, -inf};
  std::vector<float> want(8);
  std::vector<float> want_lse(4);
  std::vector<float> got(8);
  std::vector<float> got_lse(4);
  const DeviceBytes da(a.data(), 32);
  const DeviceBytes db(b.data(), 32);
  const DeviceBytes dla(lse_a.data(), 16);
  const DeviceBytes dlb(lse_b.data(), 16);
  const DeviceBytes out(32);
  bool ok =
      merge_attention(a.data(), lse_a.data(), b.data(), lse_b.data(), want.data(), want_lse.data(), 4, 2, on_host())
          .ok() &&
      merge_attention(da.as<float>(), dla.as<float>(), db.as<float>(), dlb.as<float>(), out.as<float>(),
                      dla.as<float>(), 4, 2, on_device())
          .ok();
  must(cudaDeviceSynchronize(), "a merge");
  out.download(got.data());
  dla.download(got_lse.data());
  for (std::size_t i = 0; i < 8; ++i) ok = ok && std::abs(got[i] - want[i]) <= 1e-6F;
  for (std::size_t i = 0; i < 4; ++i)
    ok = ok && (got_lse[i] == want_lse[i] || std::abs(got_lse[i] - want_lse[i]) <= 1e-6F);
  report.check("merge of parts, empty ones among them", ok);
}

}  // namespace

void check_cache_ops(Report& report) {
  check_append(report);
  check_copies(report);
  check_swap(report);
  check_gather(report);
  check_merge(report);
}

}  // namespace kvpool::gpu_check
