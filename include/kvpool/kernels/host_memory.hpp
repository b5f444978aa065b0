// Memory for a KV pool on the host: page-aligned, zeroed, on huge pages where the system grants them.
#pragma once

#include <cstddef>

#include "kvpool/foundation/error.hpp"

namespace kvpool::kernels {

/// Asks the system to back [data, data + bytes) with huge pages. A hint: false when the system has none to give, which
/// changes nothing but speed. Walking a pool in block order on 4 KiB pages costs about a third of the bandwidth.
bool advise_huge_pages(void* data, std::size_t bytes) noexcept;

/// An anonymous mapping, aligned to 2 MiB, advised to use huge pages, released by the destructor. Movable.
class HostMemory {
 public:
  /// out_of_memory when the system refuses; invalid_argument for 0 bytes.
  [[nodiscard]] static Result<HostMemory> allocate(std::size_t bytes);

  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Whether the advice to use huge pages was accepted.
  [[nodiscard]] bool huge_pages_advised() const noexcept { return huge_; }

 private:
  HostMemory(void* mapping, std::size_t mapped, void* data, std::size_t size, bool huge) noexcept;

  void* mapping_ = nullptr;  ///< what munmap gets
  std::size_t mapped_ = 0;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  bool huge_ = false;
};

}  // namespace kvpool::kernels
