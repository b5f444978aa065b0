// A fixed array on its own cache lines. Elements are constructed in place and never move: atomics.
#pragma once

#include <cstddef>
#include <memory>

#include "foundation/array_memory.hpp"
#include "foundation/cache_line.hpp"

namespace kvpool {

template <class T>
class AlignedArray {
 public:
  /// `huge_pages`: see allocate_array.
  explicit AlignedArray(std::size_t size, bool huge_pages = false)
      : size_(size), data_(static_cast<T*>(allocate_array(size * sizeof(T), kAlignment, huge_pages))) {
    std::uninitialized_value_construct_n(data_, size);
  }
  ~AlignedArray() {
    std::destroy_n(data_, size_);
    free_array(data_, size_ * sizeof(T), kAlignment);
  }
  AlignedArray(const AlignedArray&) = delete;
  AlignedArray& operator=(const AlignedArray&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] T* begin() noexcept { return data_; }
  [[nodiscard]] T* end() noexcept { return data_ + size_; }

 private:
  static constexpr std::size_t kAlignment = alignof(T) > kCacheLineBytes ? alignof(T) : kCacheLineBytes;
  std::size_t size_;
  T* data_;
};

}  // namespace kvpool
