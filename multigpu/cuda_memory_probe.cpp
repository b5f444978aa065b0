// Device memory through the CUDA runtime; per process through the management library.
#include <cuda_runtime_api.h>

#include <array>
#include <limits>
#include <string>
#include <utility>

#include "kvpool/multigpu/memory_probe.hpp"
#include "multigpu/cuda_device.hpp"
#include "multigpu/nvml_library.hpp"

namespace kvpool {

namespace {

using Figure = std::optional<std::int64_t>;

std::string uuid_text(const cudaUUID_t& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 0xfU];
  }
  return text;
}

class CudaMemoryProbe final : public MemoryProbe {
 public:
  CudaMemoryProbe(int device, const cudaDeviceProp& properties, cudaMemPool_t pool)
      : device_(device),
        name_(std::string(properties.name) + " " + uuid_text(properties.uuid)),
        uuid_(uuid_text(properties.uuid)),
        integrated_(properties.integrated != 0),
        pool_(pool),
        nvml_(multigpu::NvmlLibrary::load()),
        host_(make_host_memory_probe({})) {}

  std::string device_name() const override { return name_; }
  MemoryKind kind() const noexcept override { return MemoryKind::device; }
  bool integrated() const noexcept override { return integrated_; }

  MemoryReading read() override {
    MemoryReading reading;
    std::size_t free = 0;
    std::size_t total = 0;
    if (cudaSetDevice(device_) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess) {
      reading.runtime_free = static_cast<std::int64_t>(free);
      reading.runtime_total = static_cast<std::int64_t>(total);
    }
    if (integrated_) reading.host_available = host_->read().host_available;
    reading.pool_reserved = pool_figure(cudaMemPoolAttrReservedMemCurrent);
    reading.pool_used = pool_figure(cudaMemPoolAttrUsedMemCurrent);
    reading.pool_reserved_peak = pool_figure(cudaMemPoolAttrReservedMemHigh);
    reading.pool_used_peak = pool_figure(cudaMemPoolAttrUsedMemHigh);
    reading.graph_reserved = graph_figure(cudaGraphMemAttrReservedMemCurrent);
    if (nvml_) {
      const auto figures = nvml_->figures(uuid_);
      reading.management_total = figures.total;
      reading.own_process = figures.own_process;
      reading.other_processes = figures.other_processes;
    }
    (void)cudaGetLastError();  // a figure that cannot be had is no error of the program
    return reading;
  }

  void reset_peaks() override {
    std::uint64_t zero = 0;  // the only value that the runtime takes here
    (void)cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &zero);
    zero = 0;
    (void)cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &zero);
    (void)cudaGetLastError();
  }

 private:
  Figure pool_figure(cudaMemPoolAttr attribute) const {
    std::uint64_t value = 0;
    if (pool_ == nullptr || cudaMemPoolGetAttribute(pool_, attribute, &value) != cudaSuccess) return std::nullopt;
    return static_cast<std::int64_t>(value);
  }

  Figure graph_figure(cudaGraphMemAttributeType attribute) const {
    std::uint64_t value = 0;
    if (cudaDeviceGetGraphMemAttribute(device_, attribute, &value) != cudaSuccess) return std::nullopt;
    return static_cast<std::int64_t>(value);
  }

  int device_;
  std::string name_;
  std::string uuid_;
  bool integrated_;
  cudaMemPool_t pool_;
  std::unique_ptr<multigpu::NvmlLibrary> nvml_;
  std::unique_ptr<MemoryProbe> host_;
};

}  // namespace

namespace multigpu {

Result<CudaDevice> open_cuda_device(int device) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorInsufficientDriver || counted == cudaErrorNoDevice ||
      (counted == cudaSuccess && count == 0)) {
    (void)cudaGetLastError();
    return Error{ErrorCode::environment, std::string("no CUDA device: ") + cudaGetErrorString(counted)};
  }
  if (counted != cudaSuccess) {
    (void)cudaGetLastError();
    return Error{ErrorCode::environment, std::string("CUDA does not start: ") + cudaGetErrorString(counted)};
  }
  if (device < 0 || device >= count) {
    return Error{ErrorCode::environment,
                 "there is no CUDA device " + std::to_string(device) + ", there are " + std::to_string(count)};
  }
  cudaDeviceProp properties{};
  const cudaError_t read = cudaGetDeviceProperties(&properties, device);
  if (read != cudaSuccess) {
    return Error{ErrorCode::environment,
                 "CUDA device " + std::to_string(device) + " cannot be read: " + cudaGetErrorString(read)};
  }
  return CudaDevice{device, properties.name, uuid_text(properties.uuid)};
}

}  // namespace multigpu

Result<std::unique_ptr<MemoryProbe>> make_cuda_memory_probe(int device) {
  if (const auto opened = multigpu::open_cuda_device(device); !opened) return opened.error();
  cudaDeviceProp properties{};
  cudaMemPool_t pool = nullptr;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess || cudaSetDevice(device) != cudaSuccess) {
    return Error{ErrorCode::environment, "CUDA device " + std::to_string(device) + " cannot be used"};
  }
  if (cudaDeviceGetDefaultMemPool(&pool, device) == cudaSuccess) {
    // Freed memory stays in the pool, so that what was reserved can be read and is there for the next run.
    std::uint64_t keep_all = std::numeric_limits<std::uint64_t>::max();
    (void)cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all);
  }
  (void)cudaGetLastError();
  return std::unique_ptr<MemoryProbe>(std::make_unique<CudaMemoryProbe>(device, properties, pool));
}

}  // namespace kvpool
