// What a rank's memory looks like and how much of it the KV pool may take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/communicator.hpp"
#include "kvpool/multigpu/memory_profile.hpp"

namespace kvpool::launch {

/// Sizes in bytes, as reported per rank.
struct RankMemory {
  int rank = 0;
  std::int64_t total = 0;       ///< of the device or host
  std::int64_t peak = 0;        ///< activations and weights of this rank
  std::int64_t non_pool = 0;    ///< everything that is not KV pool
  std::int64_t available = 0;   ///< for the KV pool
  std::int64_t num_blocks = 0;  ///< that `available` holds; ranks agree on the smallest
  std::string backend;
  std::string device;
  std::vector<LedgerLine> ledger;  ///< where `total` goes, as of the profile
};

[[nodiscard]] Bytes encode(const RankMemory& memory);
/// Errors: bad_input naming `rank`, the sender.
[[nodiscard]] Result<RankMemory> decode_rank_memory(std::span<const std::byte> bytes, int rank);

}  // namespace kvpool::launch
