// Device memory of the check: plain cudaMalloc, errors end the step.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace kvpool::gpu_check {

inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::fflush(stdout);
  std::_Exit(1);
}

class DeviceBytes {
 public:
  DeviceBytes() = default;
  explicit DeviceBytes(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0) must(cudaMalloc(&data_, bytes), "cudaMalloc");
  }
  DeviceBytes(const void* from, std::size_t bytes) : DeviceBytes(bytes) {
    if (bytes > 0) must(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice), "upload");
  }
  DeviceBytes(DeviceBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBytes& operator=(DeviceBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBytes() { (void)cudaFree(data_); }

  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  template <class T = void>
  [[nodiscard]] T* as(std::size_t byte_offset = 0) const noexcept {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + byte_offset);
  }
  void download(void* to) const {
    if (bytes_ > 0) must(cudaMemcpy(to, data_, bytes_, cudaMemcpyDeviceToHost), "download");
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Page-locked host memory.
class PinnedBytes {
 public:
  explicit PinnedBytes(std::size_t bytes) { must(cudaMallocHost(&data_, bytes), "cudaMallocHost"); }
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;
  ~PinnedBytes() { (void)cudaFreeHost(data_); }
  [[nodiscard]] void* data() const noexcept { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace kvpool::gpu_check
