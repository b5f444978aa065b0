#include "prefix/pickle.hpp"

#include <array>
#include <bit>
#include <limits>
#include <variant>

#include "prefix/byte_writer.hpp"

namespace kvpool::pickle {
namespace {

// Opcodes.
constexpr std::uint8_t kProto = 0x80;
constexpr std::uint8_t kFrame = 0x95;
constexpr std::uint8_t kStop = 0x2e;
constexpr std::uint8_t kMemoize = 0x94;
constexpr std::uint8_t kNone = 0x4e;
constexpr std::uint8_t kBinInt = 0x4a;
constexpr std::uint8_t kBinInt1 = 0x4b;
constexpr std::uint8_t kBinInt2 = 0x4d;
constexpr std::uint8_t kLong1 = 0x8a;
constexpr std::uint8_t kShortBinBytes = 0x43;
constexpr std::uint8_t kBinBytes = 0x42;
constexpr std::uint8_t kBinBytes8 = 0x8e;
constexpr std::uint8_t kShortBinUnicode = 0x8c;
constexpr std::uint8_t kBinUnicode = 0x58;
constexpr std::uint8_t kBinUnicode8 = 0x8d;
constexpr std::uint8_t kMark = 0x28;
constexpr std::uint8_t kTuple = 0x74;
constexpr std::uint8_t kEmptyTuple = 0x29;
constexpr std::uint8_t kTuple1 = 0x85;  // TUPLE2 and TUPLE3 follow

constexpr std::size_t kFrameTarget = 65'536;  // a frame this long ends before the next object
constexpr std::size_t kFrameHeader = 9;       // opcode and length
constexpr std::size_t kFrameMin = 4;          // shorter frames carry no header
constexpr std::size_t kProtocolHeader = 2;

constexpr std::size_t kMaxIntBytes = 10;  // LONG1, count, 8 bytes
// Opcode, 8-byte length, memo; a large payload also closes one frame and lets another one begin.
constexpr std::size_t kMaxStringOverhead = 10 + 2 * kFrameHeader;

[[gnu::always_inline]] inline void write_integer(ByteWriter& out, std::int64_t value) noexcept {
  if (value >= 0 && value <= std::numeric_limits<std::int32_t>::max()) [[likely]] {
    // Three lengths without a branch: token ids mix them at random, and a wrong guess costs more.
    static constexpr std::array<std::uint8_t, 3> kOpcodes{kBinInt1, kBinInt2, kBinInt};
    static constexpr std::array<std::uint8_t, 3> kLengths{2, 3, 5};
    const std::size_t kind = std::size_t{value > 0xff} + std::size_t{value > 0xffff};
    out.little_endian(static_cast<std::uint64_t>(value) << 8 | kOpcodes[kind], kLengths[kind]);
    return;
  }
  const auto bits = static_cast<std::uint64_t>(value);
  if (value < 0 && value >= std::numeric_limits<std::int32_t>::min()) {
    out.byte(kBinInt);
    out.little_endian(bits, 4);
    return;
  }
  // Shortest two's complement: the magnitude's bits and one for the sign.
  const int significant = 64 - std::countl_zero(value < 0 ? ~bits : bits);
  const auto count = static_cast<std::size_t>(significant / 8 + 1);
  out.byte(kLong1);
  out.byte(static_cast<std::uint8_t>(count));
  out.little_endian(bits, count);
}

/// Frames as CPython writes them. A frame is open all the time, except around large payloads.
class Pickler {
 public:
  explicit Pickler(std::uint8_t* out) noexcept : out_(out) {
    out_.byte(kProto);
    out_.byte(5);
    open_frame();
  }

  void none() noexcept {
    begin_object();
    out_.byte(kNone);
  }

  void integer(std::int64_t value) noexcept {
    begin_object();
    write_integer(out_, value);
  }

  void integers(std::span<const TokenId> values) noexcept {
    // A frame that cannot fill up needs no look per token, and a copy of the writer can stay in a register:
    // every store through a byte pointer could change an object that others can see.
    if (frame_length() + values.size() * kMaxIntBytes < kFrameTarget) [[likely]] {
      ByteWriter out = out_;
      for (const TokenId value : values) write_integer(out, value);
      out_ = out;
    } else {
      for (const TokenId value : values) integer(value);
    }
  }

  void bytes(std::span<const std::uint8_t> data) noexcept { string(kShortBinBytes, kBinBytes, kBinBytes8, data); }

  void text(std::string_view data) noexcept {
    string(kShortBinUnicode, kBinUnicode, kBinUnicode8,
           {reinterpret_cast<const std::uint8_t*>(data.data()), data.size()});
  }

  /// `begin_tuple(n)`, n items, `end_tuple(n)`.
  void begin_tuple(std::size_t count) noexcept {
    begin_object();
    if (count > 3) out_.byte(kMark);
  }

  void end_tuple(std::size_t count) noexcept {
    if (count == 0) {
      out_.byte(kEmptyTuple);
      return;
    }
    out_.byte(count > 3 ? kTuple : static_cast<std::uint8_t>(kTuple1 + count - 1));
    out_.byte(kMemoize);
  }

  [[nodiscard]] std::size_t finish() noexcept {
    out_.byte(kStop);
    close_frame();
    return out_.size();
  }

 private:
  void open_frame() noexcept {
    frame_ = out_.size();
    out_.byte(kFrame);
    out_.little_endian(0, 8);
  }

  void close_frame() noexcept {
    const std::size_t length = frame_length();
    if (length >= kFrameMin) {
      out_.patch_little_endian(frame_ + 1, length);
    } else {
      out_.erase(frame_, kFrameHeader);
    }
  }

  [[nodiscard]] std::size_t frame_length() const noexcept { return out_.size() - frame_ - kFrameHeader; }

  void begin_object() noexcept {
    if (frame_length() >= kFrameTarget) [[unlikely]] {
      close_frame();
      open_frame();
    }
  }

  void string(std::uint8_t short_code, std::uint8_t code, std::uint8_t long_code,
              std::span<const std::uint8_t> data) noexcept {
    begin_object();
    const bool outside_frames = data.size() >= kFrameTarget;
    if (outside_frames) close_frame();
    if (data.size() <= 0xff) {
      out_.byte(short_code);
      out_.byte(static_cast<std::uint8_t>(data.size()));
    } else if (data.size() <= 0xffff'ffff) {
      out_.byte(code);
      out_.little_endian(data.size(), 4);
    } else {
      out_.byte(long_code);
      out_.little_endian(data.size(), 8);
    }
    out_.bytes(data);
    if (outside_frames) open_frame();
    out_.byte(kMemoize);
  }

  ByteWriter out_;
  std::size_t frame_ = 0;  // where the open frame's header is
};

struct KeyPickler {
  Pickler& pickler;

  void operator()(const LoraKey& lora) const noexcept { pickler.text(lora.name); }
  void operator()(const SaltKey& salt) const noexcept { pickler.text(salt.salt); }
  void operator()(const PromptEmbedsKey& rows) const noexcept { pickler.bytes(rows.sha256); }
  void operator()(const MultimodalKey& item) const noexcept {
    pickler.begin_tuple(2);
    pickler.text(item.identifier);
    pickler.integer(item.offset);
    pickler.end_tuple(2);
  }
};

// Frame headers that objects of `bytes` bytes in total can need, besides those that large strings cause.
constexpr std::size_t frame_headers(std::size_t bytes) noexcept { return (bytes / kFrameTarget + 2) * kFrameHeader; }

}  // namespace

std::size_t unit_bound(const UnitContent& unit) noexcept {
  std::size_t bytes = kProtocolHeader + 16 + unit.parent.size() + kMaxStringOverhead;
  bytes += unit.tokens.size() * kMaxIntBytes;
  for (const ExtraKey& key : unit.extra) bytes += payload_bytes(key) + kMaxStringOverhead + kMaxIntBytes + 4;
  return bytes + frame_headers(bytes) + ByteWriter::kSlack;
}

std::size_t encode_unit(const UnitContent& unit, std::uint8_t* out) noexcept {
  Pickler pickler(out);
  pickler.begin_tuple(3);
  pickler.bytes(unit.parent);
  pickler.begin_tuple(unit.tokens.size());
  pickler.integers(unit.tokens);
  pickler.end_tuple(unit.tokens.size());
  if (unit.extra.empty()) {
    pickler.none();
  } else {
    pickler.begin_tuple(unit.extra.size());
    for (const ExtraKey& key : unit.extra) std::visit(KeyPickler{pickler}, key);
    pickler.end_tuple(unit.extra.size());
  }
  pickler.end_tuple(3);
  return pickler.finish();
}

std::size_t text_bound(std::string_view text) noexcept {
  const std::size_t bytes = kProtocolHeader + text.size() + kMaxStringOverhead + 1;
  return bytes + frame_headers(bytes) + ByteWriter::kSlack;
}

std::size_t encode_text(std::string_view text, std::uint8_t* out) noexcept {
  Pickler pickler(out);
  pickler.text(text);
  return pickler.finish();
}

}  // namespace kvpool::pickle
