#include "foundation/array_memory.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <new>

namespace kvpool {
namespace {

std::atomic<std::size_t> in_use{0};

constexpr std::size_t rounded_up(std::size_t bytes) noexcept {
  return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

bool maps(std::size_t bytes, std::size_t alignment) noexcept {
  return bytes >= kHugePageBytes && alignment <= kHugePageBytes;
}

/// Whole huge pages: the system aligns to small pages, so one huge page more is mapped and the ends are cut off.
void* map_aligned(std::size_t length) {
  const std::size_t whole = length + kHugePageBytes;
  void* const mapped = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const start = static_cast<std::byte*>(mapped);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(start) % kHugePageBytes;
  const std::size_t before = past == 0 ? 0 : kHugePageBytes - past;
  if (before > 0) munmap(start, before);
  if (whole - before > length) munmap(start + before + length, whole - before - length);
  return start + before;
}

}  // namespace

void* allocate_array(std::size_t bytes, std::size_t alignment, bool huge) {
  void* memory = nullptr;
  if (maps(bytes, alignment)) {
    const std::size_t length = rounded_up(bytes);
    memory = map_aligned(length);
    // Advice before the first touch: pages that exist already would stay small. Refusal costs nothing but speed.
    if (huge) static_cast<void>(madvise(memory, length, MADV_HUGEPAGE));
  } else {
    memory = ::operator new (bytes, std::align_val_t{alignment});
  }
  in_use.fetch_add(bytes, std::memory_order_relaxed);
  return memory;
}

void free_array(void* memory, std::size_t bytes, std::size_t alignment) noexcept {
  in_use.fetch_sub(bytes, std::memory_order_relaxed);
  if (maps(bytes, alignment)) {
    munmap(memory, rounded_up(bytes));
  } else {
    ::operator delete (memory, std::align_val_t{alignment});
  }
}

std::size_t array_bytes_in_use() noexcept { return in_use.load(std::memory_order_relaxed); }

}  // namespace kvpool
