// Where a rank keeps its pages and runs its kernels. The code of a step is the same for all of them: it asks for
// the place of its data, which on the host is where the data already lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kvpool/foundation/error.hpp"
#include "kvpool/kernels/backend.hpp"
#include "kvpool/multigpu/memory_probe.hpp"

namespace kvpool::launch {

/// Memory of a device, given back by the destructor. Movable.
class DeviceMemory {
 public:
  using Release = std::function<void(void*)>;
  DeviceMemory() = default;
  DeviceMemory(void* data, std::size_t size, Release release) : data_(data, std::move(release)), size_(size) {}

  [[nodiscard]] void* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::unique_ptr<void, Release> data_{nullptr, [](void*) {}};
  std::size_t size_ = 0;
};

/// A buffer that stands in for host data on the device. Grows, never shrinks; unused on the host.
struct Staging {
  DeviceMemory memory;
};

/// Used by the thread of its rank. Calls in order of one stream; what they queue is done when wait() has returned.
class ComputeDevice {
 public:
  ComputeDevice() = default;
  ComputeDevice(const ComputeDevice&) = delete;
  ComputeDevice& operator=(const ComputeDevice&) = delete;
  virtual ~ComputeDevice() = default;

  /// What the kernels are told: backend, device, stream. max_threads is the caller's.
  [[nodiscard]] virtual kernels::ExecOptions exec() const = 0;
  /// "AVX-512", "sm_90": the kernels' variant, for the report.
  [[nodiscard]] virtual std::string variant() const = 0;
  /// Sums over ranks take buffers of this kind.
  [[nodiscard]] virtual MemoryKind memory() const noexcept = 0;

  /// Zeroed pages for the KV pool. Errors: out_of_memory, environment.
  [[nodiscard]] virtual Result<DeviceMemory> allocate_pool(std::size_t bytes) = 0;
  /// Bytes of pool memory that take physical memory now.
  [[nodiscard]] virtual std::size_t resident_bytes(const DeviceMemory& memory) const = 0;

  /// `bytes` of the host where kernels can read them, until `staging` is used again. Errors: out_of_memory,
  /// environment.
  [[nodiscard]] virtual Result<const void*> upload(Staging& staging, const void* host, std::size_t bytes) = 0;
  /// Where kernels may write what download() then brings to `host`; the content is undefined.
  [[nodiscard]] virtual Result<void*> place_for(Staging& staging, void* host, std::size_t bytes) = 0;
  /// Brings `bytes` from `place` (of place_for or upload) to `host` and waits for them.
  [[nodiscard]] virtual Status download(void* host, const void* place, std::size_t bytes) = 0;
  [[nodiscard]] virtual Status wait() = 0;

  /// Free and used memory of this device. `allocator` counts the workload's host memory.
  [[nodiscard]] virtual Result<std::unique_ptr<MemoryProbe>> make_probe(CountingAllocator& allocator,
                                                                        int ranks_on_host) = 0;
};

/// The processor with the strongest instruction set. One for all threads: it has no state.
[[nodiscard]] std::shared_ptr<ComputeDevice> host_device();

/// A CUDA device with a stream of its own. Errors: unsupported (built without CUDA), environment (no driver, no such
/// device); at once in both cases.
[[nodiscard]] Result<std::shared_ptr<ComputeDevice>> open_cuda_device(int device);

}  // namespace kvpool::launch
