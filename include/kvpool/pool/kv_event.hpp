// What the pool tells the outside world about cached content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kvpool/block/block_hash.hpp"
#include "kvpool/prefix/extra_keys.hpp"

namespace kvpool {

/// Blocks can be found from now on. One event covers one call, so `block_hashes` may be empty.
struct BlockStoredEvent {
  std::vector<BlockHash> block_hashes;
  std::optional<BlockHash> parent_block_hash;  ///< the logical predecessor, empty at the prompt's start
  std::vector<std::int64_t> token_ids;         ///< of the whole span, masked blocks included
  std::int64_t block_size = 0;                 ///< tokens
  std::optional<std::int64_t> lora_id;
  std::string medium = "GPU";
  std::optional<std::string> lora_name;
  std::optional<std::vector<ExtraKeys>> extra_keys;  ///< one entry per hash
  std::optional<std::uint32_t> group_idx;
  std::optional<std::string> kv_cache_spec_kind;
  std::optional<std::int64_t> kv_cache_spec_sliding_window;
  std::optional<std::string> session_id;
  bool operator==(const BlockStoredEvent&) const = default;
};

/// A key left the index.
struct BlockRemovedEvent {
  std::vector<BlockHash> block_hashes;
  std::string medium = "GPU";
  std::optional<std::uint32_t> group_idx;
  bool operator==(const BlockRemovedEvent&) const = default;
};

/// Every key left the index at once.
struct AllBlocksClearedEvent {
  bool operator==(const AllBlocksClearedEvent&) const = default;
};

using KVEvent = std::variant<BlockStoredEvent, BlockRemovedEvent, AllBlocksClearedEvent>;

}  // namespace kvpool
