// Vectors whose memory is counted per rank: profiling then knows weights and activations to the byte.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#include "kvpool/multigpu/memory_probe.hpp"

namespace kvpool::launch {

/// Standard allocator over a CountingAllocator; without one it counts nothing. The counter must outlive what it
/// allocated.
template <class T>
class CountedAllocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  CountedAllocator() noexcept = default;
  explicit CountedAllocator(CountingAllocator* counter) noexcept : counter_(counter) {}
  template <class U>
  CountedAllocator(const CountedAllocator<U>& other) noexcept  // NOLINT(google-explicit-constructor)
      : counter_(other.counter()) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (counter_ == nullptr) return std::allocator<T>().allocate(count);
    void* memory = counter_->allocate(count * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    if (counter_ == nullptr) {
      std::allocator<T>().deallocate(memory, count);
    } else {
      counter_->deallocate(memory, count * sizeof(T));
    }
  }
  [[nodiscard]] CountingAllocator* counter() const noexcept { return counter_; }

  friend bool operator==(const CountedAllocator&, const CountedAllocator&) noexcept = default;

 private:
  CountingAllocator* counter_ = nullptr;
};

using CountedFloats = std::vector<float, CountedAllocator<float>>;

}  // namespace kvpool::launch
