// Names of blocks: which one (BlockId), which life of it (BlockHandle), which group uses it.
#pragma once

#include <compare>
#include <cstdint>

#include "kvpool/foundation/strong_id.hpp"

namespace kvpool {

/// Number of a physical block, 0 .. num_blocks-1. The same number means the same block on every rank.
using BlockId = StrongId<struct BlockIdTag, std::uint32_t>;

/// Number of a KV cache group: layers that share one block table.
using GroupId = StrongId<struct GroupIdTag, std::uint32_t>;

/// Block 0 pads block tables where no storage is needed; it is never handed out, hashed or freed.
inline constexpr BlockId kNullBlock{0};

/// A block as it was at one moment. The generation changes whenever the block is handed out anew, so a
/// stale handle is detected (modulo the generation's width of 12 bits); `pool` tells pools apart.
struct BlockHandle {
  BlockId id{};
  std::uint16_t generation = 0;
  std::uint16_t pool = 0;

  friend constexpr auto operator<=>(const BlockHandle&, const BlockHandle&) noexcept = default;
  [[nodiscard]] constexpr bool is_null() const noexcept { return id == kNullBlock; }
};

}  // namespace kvpool
