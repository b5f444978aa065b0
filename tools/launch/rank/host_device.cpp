#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "kvpool/kernels/host_memory.hpp"
#include "tools/launch/rank/compute_device.hpp"

namespace kvpool::launch {
namespace {

/// Nothing moves: data is used where it lies.
class HostDevice final : public ComputeDevice {
 public:
  kernels::ExecOptions exec() const override { return {}; }
  std::string variant() const override { return std::string(kernels::to_string(kernels::best_tier())); }
  MemoryKind memory() const noexcept override { return MemoryKind::host; }

  Result<DeviceMemory> allocate_pool(std::size_t bytes) override {
    auto memory = kernels::HostMemory::allocate(bytes);
    if (!memory.ok()) return memory.error();
    auto owner = std::make_shared<kernels::HostMemory>(*std::move(memory));
    void* data = owner->data();
    return DeviceMemory(data, bytes, [owner](void*) mutable { owner.reset(); });
  }

  /// Pages nobody has written yet take no memory.
  std::size_t resident_bytes(const DeviceMemory& memory) const override {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> present((memory.size() + page - 1) / page);
    if (present.empty() || mincore(memory.data(), memory.size(), present.data()) != 0) return memory.size();
    const auto pages = std::count_if(present.begin(), present.end(), [](unsigned char flags) { return flags & 1U; });
    return std::min(memory.size(), static_cast<std::size_t>(pages) * page);
  }

  Result<const void*> upload(Staging& /*staging*/, const void* host, std::size_t /*bytes*/) override { return host; }
  Result<void*> place_for(Staging& /*staging*/, void* host, std::size_t /*bytes*/) override { return host; }
  Status download(void* /*host*/, const void* /*place*/, std::size_t /*bytes*/) override { return {}; }
  Status wait() override { return {}; }

  Result<std::unique_ptr<MemoryProbe>> make_probe(CountingAllocator& allocator, int ranks_on_host) override {
    HostProbeOptions options;
    options.ranks_on_host = ranks_on_host;
    options.allocator = &allocator;
    return make_host_memory_probe(options);
  }
};

}  // namespace

std::shared_ptr<ComputeDevice> host_device() {
  static const auto device = std::make_shared<HostDevice>();
  return device;
}

}  // namespace kvpool::launch
