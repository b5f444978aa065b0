// The memory probe against the device's own figures, a neighbour that takes and returns memory, a pool of most of it.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "kvpool/kernels/cache_ops.hpp"
#include "kvpool/multigpu/memory_probe.hpp"
#include "kvpool/multigpu/memory_profile.hpp"
#include "tools/gpu_check/device_memory.hpp"
#include "tools/gpu_check/steps.hpp"

extern char** environ;

namespace kvpool::gpu_check {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

/// Takes `bytes` of the stream-ordered pool at the peak of each run and captures one graph.
class PoolWorkload final : public ProfiledWorkload {
 public:
  explicit PoolWorkload(std::int64_t bytes) : bytes_(bytes) {}
  Status run() override {
    void* memory = nullptr;
    const cudaError_t error = cudaMallocAsync(&memory, static_cast<std::size_t>(bytes_), nullptr);
    if (error != cudaSuccess) {
      (void)cudaGetLastError();
      return {ErrorCode::out_of_memory, std::string("profile run: ") + cudaGetErrorString(error)};
    }
    (void)cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes_), nullptr);
    (void)cudaFreeAsync(memory, nullptr);
    (void)cudaStreamSynchronize(nullptr);
    return {};
  }

 private:
  std::int64_t bytes_;
};

std::string text_of(const std::optional<std::int64_t>& figure) {
  return figure ? std::to_string(*figure / kMiB) : std::string("unknown");
}

void report_reading(Report& report, const MemoryReading& r) {
  report.info("cudaMemGetInfo: total", text_of(r.runtime_total), "MiB");
  report.info("cudaMemGetInfo: free", text_of(r.runtime_free), "MiB");
  report.info("management library: own process", text_of(r.own_process), "MiB",
              "unknown is a legal answer in a container");
  report.info("management library: others", text_of(r.other_processes), "MiB");
}

void check_watermarks(Report& report, MemoryProbe& probe) {
  probe.reset_peaks();
  PoolWorkload workload(3 * kGiB);
  const bool ran = workload.run().ok();
  const MemoryReading r = probe.read();
  report.check("watermark of the pool sees 3 GiB that are free again",
               ran && r.pool_used_peak && *r.pool_used_peak >= 3 * kGiB && *r.pool_used_peak < 3 * kGiB + 64 * kMiB,
               "peak " + text_of(r.pool_used_peak) + " MiB, now used " + text_of(r.pool_used) + " MiB");
  report.check("reserved is no less than used",
               r.pool_reserved_peak && r.pool_used_peak && *r.pool_reserved_peak >= *r.pool_used_peak);
}

/// Profiles while a child of ours holds 10 GB and lets go of them in the middle.
void check_neighbour(Report& report, MemoryProbe& probe, const std::string& program) {
  std::vector<std::string> words = {program, "hold", "10", "2.5"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(), environ) != 0) {
    report.check("a neighbour holding 10 GB", false, "could not be started");
    return;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(2000));
  PoolWorkload workload(2 * kGiB);
  ProfileRequest request;
  request.utilization = 0.5;
  const auto profile = determine_available_memory(probe, workload, request);
  int status = 0;
  (void)waitpid(child, &status, 0);
  if (profile) {
    report.check("profile beside a neighbour that lets go of 10 GB", profile->available_bytes > 0,
                 std::to_string(profile->available_bytes / kMiB) + " MiB for KV, " + std::to_string(profile->attempts) +
                     " attempts");
    return;
  }
  const std::string& message = profile.error().message;
  report.check("profile beside a neighbour that lets go of 10 GB", profile.error().code == ErrorCode::environment,
               message);
}

void check_big_pool(Report& report, MemoryProbe& probe) {
  PoolWorkload workload(kGiB);
  ProfileRequest request;
  request.utilization = 0.85;
  const auto profile = determine_available_memory(probe, workload, request);
  if (!report.check("profile for 85 % of the device", profile.ok(), profile ? "" : profile.error().message)) return;
  std::printf("%s\n", format_ledger(profile->ledger).c_str());
  constexpr std::int64_t kPageBytes = 2 * 16 * 8 * 128 * 2;  // K and V
  const std::int64_t pages = blocks_that_fit({}, profile->available_bytes, kPageBytes);
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<std::size_t>(pages * kPageBytes));
  if (!report.check("pool of " + std::to_string(pages * kPageBytes / kMiB) + " MiB", error == cudaSuccess,
                    cudaGetErrorString(error))) {
    return;
  }
  const kernels::KvShape shape{DType::bfloat16, pages, 16, 8, 128, 128};
  auto* const v = static_cast<std::byte*>(memory) + pages * kPageBytes / 2;
  const auto view = kernels::contiguous_kv_view(shape, kernels::CacheLayout::nhd, memory, v);
  kernels::ExecOptions exec;
  exec.backend = kernels::Backend::cuda;
  const kernels::PagePair pair{0, pages - 1};
  must(cudaMemset(memory, 0x3C, kPageBytes / 2), "cudaMemset");
  const bool copied = kernels::copy_pages({&view, 1}, {&pair, 1}, exec).ok();
  std::vector<unsigned char> last(kPageBytes / 2);
  must(cudaMemcpy(last.data(), static_cast<std::byte*>(memory) + (pages - 1) * (kPageBytes / 2), last.size(),
                  cudaMemcpyDeviceToHost),
       "reading the last page");
  report.check("the last page of the pool can be written and read",
               copied && last == std::vector<unsigned char>(last.size(), 0x3C));
  const Status beside = verify_beside_pool(probe, workload, *profile, pages * kPageBytes);
  report.check("the profile run fits beside the pool", beside.ok(), beside.ok() ? "" : beside.error().message);
  must(cudaFree(memory), "cudaFree");
}

}  // namespace

void check_memory(Report& report, const std::string& program) {
  auto probe = make_cuda_memory_probe(0);
  if (!report.check("memory probe", probe.ok(), probe ? (*probe)->device_name() : probe.error().message)) return;
  report_reading(report, (*probe)->read());
  check_watermarks(report, **probe);
  check_neighbour(report, **probe, program);
  check_big_pool(report, **probe);
}

int hold_memory(double gigabytes, double seconds) {
  const DeviceBytes held(static_cast<std::size_t>(gigabytes * 1e9));
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return 0;
}

}  // namespace kvpool::gpu_check
