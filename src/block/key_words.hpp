// A key as machine words: what the block's line stores, what look-ups compare.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "kvpool/block/block_hash.hpp"

namespace kvpool {

struct KeyWords {
  std::array<std::uint64_t, 4> digest;
  std::uint32_t shape;  ///< group:26 | digest bytes:6

  static constexpr unsigned kSizeBits = 6;
  static constexpr std::uint32_t kMaxGroup = (1U << (32U - kSizeBits)) - 1;

  KeyWords() noexcept = default;  ///< without values, so that an array of keys to come costs nothing
  explicit KeyWords(const BlockKey& key) noexcept : KeyWords(key.hash, key.group) {}
  KeyWords(const BlockHash& hash, GroupId group) noexcept { assign(hash, group); }

  /// For keys that wait in an array: copying words just written, in other widths, makes the processor wait. Word by
  /// word, so that mixed() finds them in registers.
  void assign(const BlockHash& hash, GroupId group) noexcept {
    static_assert(sizeof digest == BlockHash::kMaxBytes);
    digest[0] = word(hash, 0);
    digest[1] = word(hash, 1);
    digest[2] = word(hash, 2);
    digest[3] = word(hash, 3);
    shape = (group.value() << kSizeBits) | (hash.size & ((1U << kSizeBits) - 1));
  }

  [[nodiscard]] BlockKey key() const noexcept {
    BlockKey result;
    std::memcpy(result.hash.bytes.data(), digest.data(), sizeof digest);
    result.hash.size = static_cast<std::uint8_t>(shape & ((1U << kSizeBits) - 1));
    result.group = GroupId{shape >> kSizeBits};
    return result;
  }

  /// 64 well-mixed bits. Digests are uniform already, but nothing forces callers to use digests.
  [[nodiscard]] std::uint64_t mixed() const noexcept {
    return fold(digest[0] ^ 0x9e3779b97f4a7c15ULL, digest[1] ^ (std::uint64_t{shape} << 32U) ^ 0x8ebc6af09c88c6e3ULL) ^
           fold(digest[2] ^ 0xa0761d6478bd642fULL, digest[3] ^ 0xe7037ed1a0b428dbULL);
  }

  /// All words together, without a branch, and without memcmp: its wide loads would have to wait for words that were
  /// stored one by one just before.
  friend bool operator==(const KeyWords& a, const KeyWords& b) noexcept {
    return ((a.digest[0] ^ b.digest[0]) | (a.digest[1] ^ b.digest[1]) | (a.digest[2] ^ b.digest[2]) |
            (a.digest[3] ^ b.digest[3]) | (a.shape ^ b.shape)) == 0;
  }

 private:
  static std::uint64_t word(const BlockHash& hash, std::size_t i) noexcept {
    std::uint64_t bits = 0;
    std::memcpy(&bits, hash.bytes.data() + (i * sizeof bits), sizeof bits);
    return bits;
  }
  static std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
  }
};

}  // namespace kvpool
