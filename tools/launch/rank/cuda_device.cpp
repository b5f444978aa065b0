// Pages on a CUDA device. The pool is plain device memory; staging buffers come from the device's stream-ordered pool,
// whose high-water mark the memory probe reports as activations.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "tools/launch/rank/compute_device.hpp"

namespace kvpool::launch {
namespace {

Status as_status(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return {};
  const ErrorCode code = error == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::environment;
  (void)cudaGetLastError();
  return {code, fmt::format("CUDA: {}: {}", what, cudaGetErrorString(error))};
}

class CudaDevice final : public ComputeDevice {
 public:
  CudaDevice(int index, cudaStream_t stream, std::string variant)
      : index_(index), stream_(stream), variant_(std::move(variant)) {}
  ~CudaDevice() override {
    if (cudaSetDevice(index_) == cudaSuccess) (void)cudaStreamDestroy(stream_);
  }

  kernels::ExecOptions exec() const override {
    kernels::ExecOptions options;
    options.backend = kernels::Backend::cuda;
    options.device = index_;
    options.stream = stream_;
    return options;
  }
  std::string variant() const override { return variant_; }
  MemoryKind memory() const noexcept override { return MemoryKind::device; }

  Result<DeviceMemory> allocate_pool(std::size_t bytes) override {
    if (Status status = make_current(); !status.ok()) return status.error();
    void* data = nullptr;
    Status status = as_status(cudaMalloc(&data, bytes), fmt::format("a KV pool of {} bytes", bytes));
    if (!status.ok()) return status.error();
    DeviceMemory memory(data, bytes, [device = index_](void* pool) {
      if (cudaSetDevice(device) == cudaSuccess) (void)cudaFree(pool);
    });
    status = as_status(cudaMemsetAsync(data, 0, bytes, stream_), "clearing the KV pool");
    if (status.ok()) status = wait();
    if (!status.ok()) return status.error();
    return memory;
  }

  std::size_t resident_bytes(const DeviceMemory& memory) const override { return memory.size(); }

  Result<const void*> upload(Staging& staging, const void* host, std::size_t bytes) override {
    auto place = place_for(staging, nullptr, bytes);
    if (!place.ok()) return place.error();
    const Status status = as_status(cudaMemcpyAsync(*place, host, bytes, cudaMemcpyHostToDevice, stream_), "upload");
    if (!status.ok()) return status.error();
    return static_cast<const void*>(*place);
  }

  Result<void*> place_for(Staging& staging, void* /*host*/, std::size_t bytes) override {
    if (staging.memory.size() >= bytes && staging.memory.data() != nullptr) return staging.memory.data();
    if (Status status = make_current(); !status.ok()) return status.error();
    staging.memory = {};
    void* data = nullptr;
    const std::size_t size = bytes + bytes / 4 + 256;  // some room, so that a slowly growing batch does not allocate
    const Status status = as_status(cudaMallocAsync(&data, size, stream_), fmt::format("a buffer of {} bytes", size));
    if (!status.ok()) return status.error();
    staging.memory = DeviceMemory(data, size, [device = index_, stream = stream_](void* buffer) {
      if (cudaSetDevice(device) == cudaSuccess) (void)cudaFreeAsync(buffer, stream);
    });
    return data;
  }

  Status download(void* host, const void* place, std::size_t bytes) override {
    Status status = as_status(cudaMemcpyAsync(host, place, bytes, cudaMemcpyDeviceToHost, stream_), "download");
    return status.ok() ? wait() : status;
  }

  Status wait() override { return as_status(cudaStreamSynchronize(stream_), "a step's work"); }

  Result<std::unique_ptr<MemoryProbe>> make_probe(CountingAllocator& /*allocator*/, int /*ranks_on_host*/) override {
    return make_cuda_memory_probe(index_);
  }

 private:
  [[nodiscard]] Status make_current() const {
    return as_status(cudaSetDevice(index_), fmt::format("choosing device {}", index_));
  }

  int index_;
  cudaStream_t stream_;
  std::string variant_;
};

}  // namespace

Result<std::shared_ptr<ComputeDevice>> open_cuda_device(int device) {
  if (Status status = kernels::backend_available(kernels::Backend::cuda); !status.ok()) return status.error();
  int count = 0;
  Status status = as_status(cudaGetDeviceCount(&count), "counting devices");
  if (!status.ok()) return status.error();
  if (device < 0 || device >= count) {
    return {ErrorCode::environment, fmt::format("there is no CUDA device {} here, only {}", device, count)};
  }
  cudaDeviceProp properties{};
  cudaStream_t stream = nullptr;
  status = as_status(cudaGetDeviceProperties(&properties, device), fmt::format("asking device {}", device));
  if (status.ok()) status = as_status(cudaSetDevice(device), fmt::format("choosing device {}", device));
  if (status.ok()) status = as_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  if (!status.ok()) return status.error();
  return std::shared_ptr<ComputeDevice>(
      std::make_shared<CudaDevice>(device, stream, fmt::format("sm_{}{}", properties.major, properties.minor)));
}

}  // namespace kvpool::launch
