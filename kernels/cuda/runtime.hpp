// The few things the backend needs of the CUDA runtime: answers as Status, the caller's device put back, memory that
// belongs to a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <utility>

#include "kvpool/foundation/error.hpp"

namespace kvpool::kernels::gpu {

inline Status as_status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  const ErrorCode code = error == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::environment;
  return {code, std::string("CUDA: ") + what + ": " + cudaGetErrorString(error)};
}

/// Makes a device current and puts the former one back.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    error_ = cudaGetDevice(&former_);
    if (error_ == cudaSuccess && former_ != device) {
      error_ = cudaSetDevice(device);
      changed_ = error_ == cudaSuccess;
    }
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(former_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  [[nodiscard]] Status status() const { return as_status(error_, "choosing the device"); }

 private:
  int former_ = 0;
  bool changed_ = false;
  cudaError_t error_;
};

/// Device memory allocated and freed in the order of a stream, so that freeing waits for no one. The stream's device
/// must be current for allocate() and in the destructor.
class StreamMemory {
 public:
  StreamMemory() = default;
  StreamMemory(StreamMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), stream_(other.stream_) {}
  StreamMemory& operator=(StreamMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~StreamMemory() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }

  [[nodiscard]] Status allocate(std::size_t bytes, cudaStream_t stream) {
    stream_ = stream;
    if (bytes == 0) return {};
    return as_status(cudaMallocAsync(&data_, bytes, stream), "allocating workspace");
  }
  /// allocate() and a copy of host memory into it.
  [[nodiscard]] Status upload(const void* from, std::size_t bytes, cudaStream_t stream) {
    const Status status = allocate(bytes, stream);
    return status ? fill(from, bytes, stream) : status;
  }
  /// Copies host memory, which may be changed at once, to what has been allocated.
  [[nodiscard]] Status fill(const void* from, std::size_t bytes, cudaStream_t stream) {
    if (bytes == 0) return {};
    return as_status(cudaMemcpyAsync(data_, from, bytes, cudaMemcpyHostToDevice, stream), "uploading a plan");
  }
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace kvpool::kernels::gpu
