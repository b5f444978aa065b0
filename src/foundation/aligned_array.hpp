// A fixed array on its own cache lines. Elements are constructed in place and never move: atomics.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "foundation/cache_line.hpp"

namespace kvpool {

template <class T>
class AlignedArray {
 public:
  explicit AlignedArray(std::size_t size)
      : size_(size), data_(static_cast<T*>(::operator new (size * sizeof(T), std::align_val_t{kAlignment}))) {
    std::uninitialized_value_construct_n(data_, size);
  }
  ~AlignedArray() {
    std::destroy_n(data_, size_);
    ::operator delete (data_, std::align_val_t{kAlignment});
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
