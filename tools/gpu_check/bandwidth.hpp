// Kernels and clocks of the measurements.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace kvpool::gpu_check {

/// Reads `bytes` (a multiple of 16) once and leaves a checksum at `sink`, which has room for 4 bytes.
void launch_read(const void* from, std::size_t bytes, void* sink, cudaStream_t stream);
/// Fills with bf16 numbers between -2 and 2 that look random.
void launch_fill(void* to, std::size_t bytes, unsigned seed, cudaStream_t stream);
/// Fills with fp8 numbers of both formats' finite range.
void launch_fill_bytes(void* to, std::size_t bytes, unsigned seed, cudaStream_t stream);

struct Timing {
  double median = 0;  ///< seconds
  double p10 = 0;
  double p90 = 0;
};

/// Time of work(i) by events on `stream`: `warm_up` runs, then `repeats` timed ones; i counts.
[[nodiscard]] Timing time_on_device(cudaStream_t stream, const std::function<void(int)>& work, int repeats = 30,
                                    int warm_up = 5);

}  // namespace kvpool::gpu_check
