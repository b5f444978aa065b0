// Integers in little-endian order, written to and read from a byte buffer; reading never passes the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kvpool::launch {

class ByteWriter {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_integral_v<T>);
    auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(bits) >> (8 * i)));
    }
  }
  void put_text(std::string_view text);
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::vector<std::byte> take() noexcept { return std::move(bytes_); }
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }

 private:
  std::vector<std::byte> bytes_;
};

/// After the first failure every further read answers 0 and changes nothing.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  template <class T>
  [[nodiscard]] T get(const char* field) {
    static_assert(std::is_integral_v<T>);
    if (!need(sizeof(T), field)) return 0;
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bits |= static_cast<std::uint64_t>(bytes_[offset_ + i]) << (8 * i);
    }
    offset_ += sizeof(T);
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(bits));
  }

  /// A count of elements of at least `element_bytes` bytes each: more than the rest can hold is a failure.
  [[nodiscard]] std::size_t count(std::size_t element_bytes, const char* field);

  /// What put_text wrote.
  [[nodiscard]] std::string get_text(const char* field);

  void fail(const char* field, const std::string& problem);
  [[nodiscard]] bool ok() const noexcept { return problem_.empty(); }
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  [[nodiscard]] std::size_t remaining() const noexcept { return bytes_.size() - offset_; }
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }

 private:
  [[nodiscard]] bool need(std::size_t bytes, const char* field);

  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  std::string problem_;
};

}  // namespace kvpool::launch
