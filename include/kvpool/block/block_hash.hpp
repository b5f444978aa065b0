// The hash that names a block's content: prefix, tokens and everything else that changes the KV.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kvpool/block/block_id.hpp"

namespace kvpool {

/// A digest of 16 bytes (XXH3-128) or 32 bytes (SHA-256). Shorter digests are padded with zeros, so
/// comparing all 32 bytes and the size is exact. `size == 0` means "no hash".
struct alignas(8) BlockHash {
  static constexpr std::size_t kMaxBytes = 32;

  std::array<std::uint8_t, kMaxBytes> bytes{};
  std::uint8_t size = 0;  ///< digest length in bytes

  [[nodiscard]] bool empty() const noexcept { return size == 0; }
  [[nodiscard]] std::span<const std::uint8_t> digest() const noexcept { return {bytes.data(), size}; }

  /// Last 8 digest bytes read big-endian: the form used in KV events.
  [[nodiscard]] std::uint64_t event_id() const noexcept;

  /// Lower-case hex of the digest.
  [[nodiscard]] std::string to_hex() const;

  /// Inverse of to_hex; nullopt for odd length, foreign characters, an empty text or over 32 bytes.
  [[nodiscard]] static std::optional<BlockHash> from_hex(std::string_view hex);

  [[nodiscard]] static BlockHash from_digest(std::span<const std::uint8_t> digest) noexcept;

  friend bool operator==(const BlockHash&, const BlockHash&) noexcept = default;
  friend auto operator<=>(const BlockHash&, const BlockHash&) noexcept = default;
};

/// What the index maps to blocks: content hash plus the group it was computed for.
struct BlockKey {
  BlockHash hash;
  GroupId group{};

  /// Hex of the digest followed by the group id as 4 bytes big-endian (op scripts, debugging).
  [[nodiscard]] std::string to_hex() const;

  friend bool operator==(const BlockKey&, const BlockKey&) noexcept = default;
  friend auto operator<=>(const BlockKey&, const BlockKey&) noexcept = default;
};

}  // namespace kvpool

template <>
struct std::hash<kvpool::BlockHash> {
  std::size_t operator()(const kvpool::BlockHash& digest) const noexcept {
    std::size_t word = 0;  // a digest is uniform already: any 8 bytes do
    std::memcpy(&word, digest.bytes.data(), sizeof word);
    return word;
  }
};

template <>
struct std::hash<kvpool::BlockKey> {
  std::size_t operator()(const kvpool::BlockKey& key) const noexcept {
    return std::hash<kvpool::BlockHash>{}(key.hash) ^ (key.group.value() * 0x9e3779b97f4a7c15ULL);
  }
};
