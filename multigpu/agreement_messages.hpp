// The contributions of the agreement's steps, as bytes. Decoding answers why it failed, never throws.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/communicator.hpp"
#include "kvpool/multigpu/rank_coordinator.hpp"

namespace kvpool::multigpu {

struct HelloMessage {
  std::uint32_t protocol_version = 0;
  std::uint32_t world_size = 0;
  std::uint32_t rank = 0;
  Status profiling;
  Status local_part;
  std::string layout_digest;                          ///< 64 hex digits
  std::optional<PipelineStage> stage = std::nullopt;  ///< without the model's layers, which the digest covers
};

struct CommitMessage {
  Status outcome;
  std::vector<std::int64_t> limits;
};

[[nodiscard]] Bytes encode(const HelloMessage& hello);
/// Reads the rest only when the version is ours; other versions answer version, world size and rank.
[[nodiscard]] std::optional<HelloMessage> decode_hello(std::span<const std::byte> bytes);

[[nodiscard]] Bytes encode_limits(std::span<const std::int64_t> limits);
[[nodiscard]] std::optional<std::vector<std::int64_t>> decode_limits(std::span<const std::byte> bytes,
                                                                     std::size_t pools);

[[nodiscard]] Bytes encode(const CommitMessage& commit);
[[nodiscard]] std::optional<CommitMessage> decode_commit(std::span<const std::byte> bytes, std::size_t pools);

}  // namespace kvpool::multigpu
