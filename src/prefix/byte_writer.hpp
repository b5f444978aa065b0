// Raw output into a buffer that the caller has sized: the two encoders know an upper bound in advance.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace kvpool {

/// Appends bytes without any bounds check. Word stores write 8 bytes and keep only some of them, so the
/// buffer needs kSlack bytes beyond the last one that counts.
class ByteWriter {
 public:
  static constexpr std::size_t kSlack = 8;

  explicit ByteWriter(std::uint8_t* begin) noexcept : begin_(begin), end_(begin) {}

  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(end_ - begin_); }
  [[nodiscard]] std::uint8_t* at(std::size_t offset) const noexcept { return begin_ + offset; }

  void byte(std::uint8_t value) noexcept { *end_++ = value; }

  void bytes(std::span<const std::uint8_t> data) noexcept {
    if (data.empty()) return;
    std::memcpy(end_, data.data(), data.size());
    end_ += data.size();
  }

  void text(std::string_view data) noexcept {
    if (data.empty()) return;
    std::memcpy(end_, data.data(), data.size());
    end_ += data.size();
  }

  /// The `count` low bytes of `value`, least significant first.
  void little_endian(std::uint64_t value, std::size_t count) noexcept {
    if constexpr (std::endian::native == std::endian::big) value = __builtin_bswap64(value);
    std::memcpy(end_, &value, sizeof value);
    end_ += count;
  }

  /// The `count` high bytes of `value`, most significant first.
  void big_endian_high(std::uint64_t value, std::size_t count) noexcept {
    if constexpr (std::endian::native == std::endian::little) value = __builtin_bswap64(value);
    std::memcpy(end_, &value, sizeof value);
    end_ += count;
  }

  /// Overwrites 8 bytes at `offset`, least significant first.
  void patch_little_endian(std::size_t offset, std::uint64_t value) noexcept {
    if constexpr (std::endian::native == std::endian::big) value = __builtin_bswap64(value);
    std::memcpy(begin_ + offset, &value, sizeof value);
  }

  /// Takes `count` bytes out at `offset`; what follows moves up.
  void erase(std::size_t offset, std::size_t count) noexcept {
    std::memmove(begin_ + offset, begin_ + offset + count, size() - offset - count);
    end_ -= count;
  }

 private:
  std::uint8_t* begin_;
  std::uint8_t* end_;
};

}  // namespace kvpool
