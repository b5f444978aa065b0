// The envelope of every message: what it belongs to, how long it is, and two checksums.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kvpool/multigpu/communicator.hpp"

namespace kvpool::multigpu {

enum class FrameKind : std::uint8_t {
  agree = 1,
  all_gather,
  gather,
  broadcast,
  all_reduce_min,
  all_reduce_sum,
  all_reduce_sum_bf16,
  barrier,
  nudge,    ///< asks for the last report of a flood once more
  failure,  ///< finding the verdict after an operation failed
  abort,    ///< payload: the reason
  decided,  ///< payload: the verdict
};

[[nodiscard]] std::string_view to_string(FrameKind kind) noexcept;

struct FrameHeader {
  FrameKind kind = FrameKind::agree;
  std::uint8_t phase = 0;      ///< round within the operation
  std::uint64_t sequence = 0;  ///< number of the operation, equal on all ranks
};

[[nodiscard]] Bytes encode_frame(const FrameHeader& header, int from, int world_size,
                                 std::span<const std::byte> payload);

struct DecodedFrame {
  /// Empty: not even the header can be trusted.
  std::optional<FrameHeader> header;
  Bytes payload;
  /// Why the message is refused; empty when it is sound.
  std::string defect;
};

/// Checks length, magic, version, sender, world size and both checksums. Never throws on bad input and
/// never allocates from an unchecked length.
[[nodiscard]] DecodedFrame decode_frame(std::span<const std::byte> message, int from, int world_size);

}  // namespace kvpool::multigpu
