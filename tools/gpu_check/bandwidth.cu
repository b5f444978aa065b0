#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "tools/gpu_check/bandwidth.hpp"
#include "tools/gpu_check/device_memory.hpp"

namespace kvpool::gpu_check {
namespace {

constexpr int kReadThreads = 512;

__device__ unsigned scrambled(std::uint64_t i, unsigned seed) {
  auto x = static_cast<unsigned>(i) * 2654435761U + seed;
  x ^= x >> 15U;
  x *= 2246822519U;
  return x ^ (x >> 13U);
}

__global__ void __launch_bounds__(kReadThreads) read_kernel(const uint4* from, std::size_t count, unsigned* sink) {
  unsigned sum = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * kReadThreads;
  std::size_t i = static_cast<std::size_t>(blockIdx.x) * kReadThreads + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {  // four loads under way per thread
    const uint4 a = __ldcs(from + i);
    const uint4 b = __ldcs(from + i + step);
    const uint4 c = __ldcs(from + i + 2 * step);
    const uint4 d = __ldcs(from + i + 3 * step);
    sum += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < count; i += step) sum += from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
  if (sum == 0x12345678U) atomicAdd(sink, 1U);  // keeps the loads alive
}

__global__ void fill_kernel(std::uint32_t* to, std::size_t words, unsigned seed) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += step) {
    const unsigned x = scrambled(i, seed);
    to[i] = (x & 0x80FF80FFU) | 0x3F003F00U;  // exponents 126 and 127, either sign
  }
}

__global__ void fill_bytes_kernel(std::uint32_t* to, std::size_t words, unsigned seed) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += step) {
    to[i] = (scrambled(i, seed) & 0x8F8F8F8FU) | 0x30303030U;
  }
}

int many_blocks() {
  int device = 0;
  int processors = 1;
  must(cudaGetDevice(&device), "cudaGetDevice");
  must(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return processors * 4;
}

}  // namespace

void launch_read(const void* from, std::size_t bytes, void* sink, cudaStream_t stream) {
  read_kernel<<<many_blocks(), kReadThreads, 0, stream>>>(static_cast<const uint4*>(from), bytes / 16,
                                                          static_cast<unsigned*>(sink));
  must(cudaGetLastError(), "the read kernel");
}

void launch_fill(void* to, std::size_t bytes, unsigned seed, cudaStream_t stream) {
  fill_kernel<<<many_blocks(), kReadThreads, 0, stream>>>(static_cast<std::uint32_t*>(to), bytes / 4, seed);
  must(cudaGetLastError(), "the fill kernel");
}

void launch_fill_bytes(void* to, std::size_t bytes, unsigned seed, cudaStream_t stream) {
  fill_bytes_kernel<<<many_blocks(), kReadThreads, 0, stream>>>(static_cast<std::uint32_t*>(to), bytes / 4, seed);
  must(cudaGetLastError(), "the fill kernel");
}

Timing time_on_device(cudaStream_t stream, const std::function<void(int)>& work, int repeats, int warm_up) {
  for (int i = 0; i < warm_up; ++i) work(i);
  std::vector<cudaEvent_t> events(static_cast<std::size_t>(2 * repeats));
  for (cudaEvent_t& event : events) must(cudaEventCreate(&event), "cudaEventCreate");
  for (int i = 0; i < repeats; ++i) {
    must(cudaEventRecord(events[static_cast<std::size_t>(2 * i)], stream), "cudaEventRecord");
    work(warm_up + i);
    must(cudaEventRecord(events[static_cast<std::size_t>(2 * i + 1)], stream), "cudaEventRecord");
  }
  must(cudaStreamSynchronize(stream), "a measured kernel");
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    float ms = 0;
    must(
        cudaEventElapsedTime(&ms, events[static_cast<std::size_t>(2 * i)], events[static_cast<std::size_t>(2 * i + 1)]),
        "cudaEventElapsedTime");
    seconds.push_back(static_cast<double>(ms) * 1e-3);
  }
  for (cudaEvent_t event : events) (void)cudaEventDestroy(event);
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) { return seconds[static_cast<std::size_t>(share * (seconds.size() - 1))]; };
  return {at(0.5), at(0.1), at(0.9)};
}

}  // namespace kvpool::gpu_check
