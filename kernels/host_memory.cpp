#include "kvpool/kernels/host_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace kvpool::kernels {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

bool advise_huge_pages(void* data, std::size_t bytes) noexcept {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / page * page;
  if (first >= end) return false;
#if defined(MADV_HUGEPAGE)
  return madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE) == 0;  // NOLINT(performance-no-int-to-ptr)
#else
  return false;
#endif
}

Result<HostMemory> HostMemory::allocate(std::size_t bytes) {
  if (bytes == 0) return Error{ErrorCode::invalid_argument, "a host pool of 0 bytes was asked for"};
  const std::size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  const std::size_t mapped = size + kHugePage;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return Error{ErrorCode::out_of_memory, "the system refused a mapping of " + std::to_string(mapped) + " bytes"};
  }
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(mapping) % kHugePage;
  std::byte* data = static_cast<std::byte*>(mapping) + (misaligned == 0 ? 0 : kHugePage - misaligned);
  const bool huge = advise_huge_pages(data, size);
  return HostMemory(mapping, mapped, data, bytes, huge);
}

HostMemory::HostMemory(void* mapping, std::size_t mapped, void* data, std::size_t size, bool huge) noexcept
    : mapping_(mapping), mapped_(mapped), data_(data), size_(size), huge_(huge) {}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      huge_(other.huge_) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(huge_, other.huge_);
  return *this;
}

HostMemory::~HostMemory() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

}  // namespace kvpool::kernels
