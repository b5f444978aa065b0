#include "prefix/cbor.hpp"

#include <array>
#include <variant>

#include "prefix/byte_writer.hpp"

namespace kvpool::cbor {
namespace {

// Major types, in the place they have in a head byte.
constexpr std::uint8_t kUnsigned = 0 << 5;
constexpr std::uint8_t kNegative = 1 << 5;
constexpr std::uint8_t kByteString = 2 << 5;
constexpr std::uint8_t kTextString = 3 << 5;
constexpr std::uint8_t kArray = 4 << 5;
constexpr std::uint8_t kNull = 0xf6;

constexpr std::size_t kMaxHead = 9;

/// Head with the shortest form of `value`.
void head(ByteWriter& out, std::uint8_t major, std::uint64_t value) noexcept {
  if (value <= 0xffff'ffff) [[likely]] {
    // Four lengths without a branch: token ids mix them at random, and a wrong guess costs more.
    static constexpr std::array<std::uint8_t, 4> kInfo{0, 24, 25, 26};
    static constexpr std::array<std::uint8_t, 4> kLengths{1, 2, 3, 5};
    static constexpr std::array<std::uint8_t, 4> kShift{56, 48, 40, 24};
    const std::size_t kind = std::size_t{value > 23} + std::size_t{value > 0xff} + std::size_t{value > 0xffff};
    out.big_endian_high(static_cast<std::uint64_t>(major | kInfo[kind]) << 56 | value << kShift[kind], kLengths[kind]);
  } else {
    out.byte(major | 27);
    out.big_endian_high(value, 8);
  }
}

void integer(ByteWriter& out, std::int64_t value) noexcept {
  if (value >= 0) [[likely]] {
    head(out, kUnsigned, static_cast<std::uint64_t>(value));
  } else {
    head(out, kNegative, ~static_cast<std::uint64_t>(value));  // -1 - value
  }
}

void bytes(ByteWriter& out, std::span<const std::uint8_t> data) noexcept {
  head(out, kByteString, data.size());
  out.bytes(data);
}

void text(ByteWriter& out, std::string_view data) noexcept {
  head(out, kTextString, data.size());
  out.text(data);
}

struct KeyWriter {
  ByteWriter& out;

  void operator()(const LoraKey& lora) const noexcept { text(out, lora.name); }
  void operator()(const SaltKey& salt) const noexcept { text(out, salt.salt); }
  void operator()(const PromptEmbedsKey& rows) const noexcept { bytes(out, rows.sha256); }
  void operator()(const MultimodalKey& item) const noexcept {
    head(out, kArray, 2);
    text(out, item.identifier);
    integer(out, item.offset);
  }
};

}  // namespace

std::size_t unit_bound(const UnitContent& unit) noexcept {
  std::size_t size = 4 * kMaxHead + unit.parent.size() + unit.tokens.size() * kMaxHead;
  for (const ExtraKey& key : unit.extra) size += payload_bytes(key) + 3 * kMaxHead;
  return size + ByteWriter::kSlack;
}

std::size_t encode_unit(const UnitContent& unit, std::uint8_t* out) noexcept {
  ByteWriter writer(out);
  head(writer, kArray, 3);
  bytes(writer, unit.parent);
  head(writer, kArray, unit.tokens.size());
  for (const TokenId token : unit.tokens) integer(writer, token);
  if (unit.extra.empty()) {
    writer.byte(kNull);
  } else {
    head(writer, kArray, unit.extra.size());
    for (const ExtraKey& key : unit.extra) std::visit(KeyWriter{writer}, key);
  }
  return writer.size();
}

std::size_t text_bound(std::string_view text) noexcept { return kMaxHead + text.size() + ByteWriter::kSlack; }

std::size_t encode_text(std::string_view data, std::uint8_t* out) noexcept {
  ByteWriter writer(out);
  text(writer, data);
  return writer.size();
}

}  // namespace kvpool::cbor
