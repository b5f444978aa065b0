#include "tests/kernels/fake_cuda/fake_device.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace kvpool::kernels::test {
namespace {

constexpr int kForeignByte = 0xFF;  // what memory holds that nobody has written, or that is no longer anybody's

}  // namespace

FakeDevices& FakeDevices::get() {
  static FakeDevices devices;
  return devices;
}

void FakeDevices::reset() { *this = FakeDevices(); }

std::map<const void*, std::size_t> FakeDevices::live() const {
  std::map<const void*, std::size_t> live;
  for (const Block& block : blocks_) {
    if (!block.freed) live[block.memory.get()] = block.bytes;
  }
  return live;
}

void FakeDevices::mark(const void* memory, std::size_t bytes, cudaMemoryType type) {
  const auto* begin = static_cast<const std::byte*>(memory);
  ranges_.push_back({begin, begin + bytes, type});
}

FakeDevices::Graph FakeDevices::end_capture() {
  capturing_ = false;
  return std::exchange(graph_, {});
}

cudaError_t FakeDevices::note(const char* what, std::size_t size, cudaError_t failure) {
  calls_.push_back({what, current, size});
  return fail_at_ > 0 && --fail_at_ == 0 ? failure : cudaSuccess;
}

cudaError_t FakeDevices::launch(const char* kernel, std::size_t blocks, std::function<void()> work) {
  if (const cudaError_t error = note(kernel, blocks, cudaErrorLaunchFailure); error != cudaSuccess) return error;
  if (capturing_) {
    graph_.push_back(std::move(work));
  } else {
    work();
  }
  return cudaSuccess;
}

cudaError_t FakeDevices::allocate(void** memory, std::size_t bytes) {
  if (const cudaError_t error = note("allocate", bytes, cudaErrorMemoryAllocation); error != cudaSuccess) return error;
  blocks_.push_back({std::make_unique<std::byte[]>(bytes), bytes, current});
  std::memset(blocks_.back().memory.get(), kForeignByte, bytes);
  *memory = blocks_.back().memory.get();
  return cudaSuccess;
}

cudaError_t FakeDevices::free(void* memory) {
  for (Block& block : blocks_) {
    if (block.memory.get() != memory) continue;
    if (block.freed) throw std::logic_error("device memory was freed twice");
    if (block.device != current) throw std::logic_error("device memory was freed on another device");
    calls_.push_back({"free", current, block.bytes});
    std::memset(memory, kForeignByte, block.bytes);
    block.freed = true;
    return cudaSuccess;
  }
  throw std::logic_error("memory was freed that no device has handed out");
}

cudaMemoryType FakeDevices::type_of(const void* pointer) const {
  const auto* at = static_cast<const std::byte*>(pointer);
  for (const Range& range : ranges_) {
    if (at >= range.begin && at < range.end) return range.type;
  }
  return cudaMemoryTypeUnregistered;
}

}  // namespace kvpool::kernels::test

using kvpool::kernels::test::FakeDevices;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
  }
  return "unknown error";
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = FakeDevices::kCount;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = FakeDevices::get().current;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= FakeDevices::kCount) return cudaErrorInvalidDevice;
  FakeDevices::get().current = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*attribute*/, int device) {
  if (device < 0 || device >= FakeDevices::kCount) return cudaErrorInvalidDevice;
  *value = 2;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  attributes->type = FakeDevices::get().type_of(pointer);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t /*stream*/) {
  return FakeDevices::get().allocate(memory, bytes);
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t /*stream*/) { return FakeDevices::get().free(memory); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t /*stream*/) {
  const cudaError_t error = FakeDevices::get().note("copy", bytes, cudaErrorInvalidValue);
  if (error == cudaSuccess) std::memcpy(to, from, bytes);
  return error;
}

cudaError_t cudaMemcpyBatchAsync(void** to, const void** from, std::size_t* bytes, std::size_t count,
                                 cudaMemcpyAttributes* attributes, std::size_t* first, std::size_t num_attributes,
                                 cudaStream_t stream) {
  if (attributes == nullptr || first == nullptr || *first != 0 || num_attributes != 1 || stream == nullptr)
    return cudaErrorInvalidValue;
  const cudaError_t error = FakeDevices::get().note("copy batch", count, cudaErrorInvalidValue);
  if (error != cudaSuccess) return error;
  for (std::size_t i = 0; i < count; ++i) std::memcpy(to[i], from[i], bytes[i]);
  return cudaSuccess;
}
