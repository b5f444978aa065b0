#include "kvpool/block/block_hash.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kvpool {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

void append_hex(std::string& text, std::uint8_t byte) {
  text.push_back(kHexDigits[byte >> 4]);
  text.push_back(kHexDigits[byte & 15]);
}

int hex_value(char digit) noexcept {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

}  // namespace

std::uint64_t BlockHash::event_id() const noexcept {
  std::uint64_t id = 0;
  if (size >= sizeof id && std::endian::native == std::endian::little) {  // one load: event streams are made of these
    std::memcpy(&id, bytes.data() + size - sizeof id, sizeof id);
    return __builtin_bswap64(id);
  }
  const std::size_t first = size >= 8 ? size - std::size_t{8} : 0;
  for (std::size_t i = first; i < size; ++i) id = (id << 8) | bytes[i];
  return id;
}

std::string BlockHash::to_hex() const {
  std::string text;
  text.reserve(std::size_t{2} * size);
  for (const std::uint8_t byte : digest()) append_hex(text, byte);
  return text;
}

std::optional<BlockHash> BlockHash::from_hex(std::string_view hex) {
  if (hex.empty() || hex.size() % 2 != 0 || hex.size() / 2 > kMaxBytes) return std::nullopt;
  BlockHash hash;
  hash.size = static_cast<std::uint8_t>(hex.size() / 2);
  for (std::size_t i = 0; i < hash.size; ++i) {
    const int high = hex_value(hex[2 * i]);
    const int low = hex_value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    hash.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return hash;
}

BlockHash BlockHash::from_digest(std::span<const std::uint8_t> digest) noexcept {
  BlockHash hash;
  hash.size = static_cast<std::uint8_t>(std::min(digest.size(), kMaxBytes));
  std::copy_n(digest.begin(), hash.size, hash.bytes.begin());
  return hash;
}

std::string BlockKey::to_hex() const {
  std::string text = hash.to_hex();
  for (int shift = 24; shift >= 0; shift -= 8) {
    append_hex(text, static_cast<std::uint8_t>(group.value() >> shift));
  }
  return text;
}

}  // namespace kvpool
