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
[[gnu::always_inline]] inline void head(ByteWriter& out, std::uint8_t major, std::uint64_t value) noexcept {
  if (value <= 0xffff'ffff) [[likely]] {
    // Four lengths without a branch: token ids mix them at random, and a wrong guess costs more. Multiplying
    // puts the value behind its head byte, at the top of the word.
    struct Form {
      std::uint64_t info;
      std::uint64_t scale;
      std::size_t length;
    };
    static constexpr std::array<Form, 4> kForms{{{std::uint64_t{0} << 56, std::uint64_t{1} << 56, 1},
                                                 {std::uint64_t{24} << 56, std::uint64_t{1} << 48, 2},
                                                 {std::uint64_t{25} << 56, std::uint64_t{1} << 40, 3},
                                                 {std::uint64_t{26} << 56, std::uint64_t{1} << 24, 5}}};
    const Form& form = kForms[std::size_t{value > 23} + std::size_t{value > 0xff} + std::size_t{value > 0xffff}];
    out.big_endian_high((static_cast<std::uint64_t>(major) << 56) + form.info + value * form.scale, form.length);
  } else {
    out.byte(major | 27);
    out.big_endian_high(value, 8);
  }
}

[[gnu::always_inline]] inline void integer(ByteWriter& out, std::int64_t value) noexcept {
  if (value >= 0) [[likely]] {
    head(out, kUnsigned, static_cast<std::uint64_t>(value));
  } else {
    head(out, kNegative, ~static_cast<std::uint64_t>(value));  // -1 - value
  }
}

// On a copy of the writer: every store through a byte pointer could change an object that others can see, and
// the position would go through memory once per token.
ByteWriter integers(ByteWriter out, std::span<const TokenId> values) noexcept {
  for (const TokenId value : values) {
    const auto bits = static_cast<std::uint64_t>(value);
    if (bits <= 0xffff'ffff) [[likely]] {  // one comparison for both ends of the range
      head(out, kUnsigned, bits);
    } else {
      integer(out, value);
    }
  }
  return out;
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
  writer = integers(writer, unit.tokens);
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
