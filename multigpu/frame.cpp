#include "multigpu/frame.hpp"

#include <xxhash.h>

#include "multigpu/byte_order.hpp"

namespace kvpool::multigpu {

namespace {

constexpr std::uint32_t kMagic = 0x4b56'5052U;  // "RPVK" on the wire
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 48;
constexpr std::size_t kHeaderHashOffset = kHeaderBytes - sizeof(std::uint64_t);

bool known_kind(std::uint8_t kind) {
  return kind >= static_cast<std::uint8_t>(FrameKind::agree) && kind <= static_cast<std::uint8_t>(FrameKind::decided);
}

std::string number_pair(std::string_view what, std::uint64_t got, std::string_view unit, std::uint64_t expected) {
  return std::string(what) + " " + std::to_string(got) + std::string(unit) + ", expected " + std::to_string(expected);
}

}  // namespace

std::string_view to_string(FrameKind kind) noexcept {
  switch (kind) {
    case FrameKind::agree: return "agree";
    case FrameKind::all_gather: return "all_gather";
    case FrameKind::gather: return "gather";
    case FrameKind::broadcast: return "broadcast";
    case FrameKind::all_reduce_min: return "all_reduce_min";
    case FrameKind::all_reduce_sum: return "all_reduce_sum";
    case FrameKind::all_reduce_sum_bf16: return "all_reduce_sum_bf16";
    case FrameKind::barrier: return "barrier";
    case FrameKind::nudge: return "nudge";
    case FrameKind::failure: return "failure";
    case FrameKind::abort: return "abort";
    case FrameKind::decided: return "decided";
  }
  return "unknown";
}

Bytes encode_frame(const FrameHeader& header, int from, int world_size, std::span<const std::byte> payload) {
  Bytes out;
  out.reserve(kHeaderBytes + payload.size());
  put(out, kMagic);
  put(out, kVersion);
  put(out, static_cast<std::uint8_t>(header.kind));
  put(out, header.phase);
  put(out, static_cast<std::uint32_t>(from));
  put(out, static_cast<std::uint32_t>(world_size));
  put(out, header.sequence);
  put(out, static_cast<std::uint64_t>(payload.size()));
  put(out, static_cast<std::uint64_t>(XXH3_64bits(payload.data(), payload.size())));
  put(out, static_cast<std::uint64_t>(XXH3_64bits(out.data(), kHeaderHashOffset)));
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

DecodedFrame decode_frame(std::span<const std::byte> message, int from, int world_size) {
  DecodedFrame frame;
  if (message.size() < kHeaderBytes) {
    frame.defect = number_pair("a message of", message.size(), " bytes", kHeaderBytes) + " at least";
    return frame;
  }
  ByteReader reader(message);
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint8_t kind = 0;
  std::uint8_t phase = 0;
  std::uint32_t sender = 0;
  std::uint32_t world = 0;
  std::uint64_t sequence = 0;
  std::uint64_t length = 0;
  std::uint64_t payload_hash = 0;
  std::uint64_t header_hash = 0;
  const bool complete = reader.get(magic) && reader.get(version) && reader.get(kind) && reader.get(phase) &&
                        reader.get(sender) && reader.get(world) && reader.get(sequence) && reader.get(length) &&
                        reader.get(payload_hash) && reader.get(header_hash);
  if (!complete || magic != kMagic) {
    frame.defect = "a message that is not of this protocol";
  } else if (version != kVersion) {
    frame.defect = number_pair("message format", version, "", kVersion);
  } else if (header_hash != XXH3_64bits(message.data(), kHeaderHashOffset) || !known_kind(kind)) {
    frame.defect = "a message with a damaged header";
  } else if (sender != static_cast<std::uint32_t>(from)) {
    frame.defect = number_pair("a message that says it comes from rank", sender, "", static_cast<std::uint64_t>(from));
  } else if (world != static_cast<std::uint32_t>(world_size)) {
    frame.defect = number_pair("a message for a world of", world, " ranks", static_cast<std::uint64_t>(world_size));
  }
  if (!frame.defect.empty()) return frame;

  frame.header = FrameHeader{static_cast<FrameKind>(kind), phase, sequence};
  const auto payload = message.subspan(kHeaderBytes);
  if (length != payload.size()) {
    frame.defect = number_pair("a payload of", payload.size(), " bytes", length);
  } else if (payload_hash != XXH3_64bits(payload.data(), payload.size())) {
    frame.defect = "a damaged payload of " + std::to_string(payload.size()) + " bytes";
  } else {
    frame.payload.assign(payload.begin(), payload.end());
  }
  return frame;
}

}  // namespace kvpool::multigpu
