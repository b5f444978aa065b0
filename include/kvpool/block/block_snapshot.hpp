// What a block looked like at one moment: for tests, dumps and failure reports.
#pragma once

#include <cstdint>
#include <optional>

#include "kvpool/block/block_hash.hpp"
#include "kvpool/block/block_id.hpp"

namespace kvpool {

struct BlockSnapshot {
  BlockId id{};
  std::uint32_t ref_count = 0;
  std::uint16_t generation = 0;
  std::optional<BlockKey> primary_key;  ///< empty: no content that a look-up may return
  std::int64_t covered_tokens = 0;      ///< length of the prefix that the primary key stands for
  bool free = false;                    ///< may be handed out
  bool fenced = false;                  ///< unreferenced, but waits for its fence
  bool is_null = false;                 ///< the placeholder block
};

}  // namespace kvpool
