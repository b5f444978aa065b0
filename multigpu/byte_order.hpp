// Little-endian numbers in and out of messages; reading never goes past the end.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "kvpool/multigpu/communicator.hpp"

namespace kvpool::multigpu {

template <std::integral T>
void put(Bytes& out, T value) {
  using Unsigned = std::make_unsigned_t<T>;
  auto bits = static_cast<std::uint64_t>(static_cast<Unsigned>(value));
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<std::byte>(bits & 0xffU));
    bits >>= 8U;
  }
}

inline void put_text(Bytes& out, std::string_view text) {
  put(out, static_cast<std::uint32_t>(text.size()));
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), bytes, bytes + text.size());
}

/// Reads a message front to back. After the first short read everything else fails too.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  template <std::integral T>
  [[nodiscard]] bool get(T& value) noexcept {
    if (!take(sizeof(T))) return false;
    std::uint64_t bits = 0;
    for (std::size_t i = sizeof(T); i-- > 0;) bits = (bits << 8U) | std::to_integer<std::uint64_t>(taken_[i]);
    value = static_cast<T>(static_cast<std::make_unsigned_t<T>>(bits));
    return true;
  }

  /// Refuses texts longer than `limit` bytes.
  [[nodiscard]] bool get_text(std::string& text, std::size_t limit) {
    std::uint32_t length = 0;
    if (!get(length) || length > limit || !take(length)) return fail();
    text.assign(reinterpret_cast<const char*>(taken_.data()), taken_.size());
    return true;
  }

  [[nodiscard]] bool get_bytes(std::span<std::byte> into) noexcept {
    if (!take(into.size())) return false;
    if (!into.empty()) std::memcpy(into.data(), taken_.data(), into.size());
    return true;
  }

  [[nodiscard]] std::size_t left() const noexcept { return bytes_.size(); }
  /// Everything was read and nothing was short.
  [[nodiscard]] bool finished() const noexcept { return sound_ && bytes_.empty(); }

 private:
  bool fail() noexcept {
    sound_ = false;
    return false;
  }
  bool take(std::size_t size) noexcept {
    if (!sound_ || size > bytes_.size()) return fail();
    taken_ = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return true;
  }

  std::span<const std::byte> bytes_;
  std::span<const std::byte> taken_;
  bool sound_ = true;
};

/// The object representation of a span of numbers, for payloads between equal machines.
template <class T>
[[nodiscard]] std::span<const std::byte> bytes_of(std::span<const T> values) noexcept {
  return std::as_bytes(values);
}

}  // namespace kvpool::multigpu
