// What a block id means, as text: two ranks whose texts are equal may exchange block ids.
//
// The text is canonical: same facts, same bytes, on every platform. Ranks hash it, and when the hashes
// differ they compare the texts line by line to name what differs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvpool/config/kv_cache_config.hpp"

namespace kvpool {

/// What must agree besides the groups themselves. Not part of the text: the number of blocks and the
/// tensors, which ranks agree on later or hold only in part.
struct LayoutContext {
  std::int64_t max_model_len = 0;         ///< tokens
  std::int64_t scheduler_block_size = 0;  ///< tokens; 0: not decided yet
  std::int64_t hash_block_size = 0;       ///< tokens; 0: not decided yet
  std::int64_t dcp_world_size = 1;
  std::string block_order = "NHD";  ///< order of tokens, heads and elements inside a page
};

/// One fact. As a line of text: field, one space, value. Values hold no white space.
struct LayoutLine {
  std::string field;  ///< "group 1 sliding_window"
  std::string value;  ///< "4096"
  bool operator==(const LayoutLine&) const = default;
};

/// Facts in a fixed order. Pipeline ranks hold different layers, so `groups` are those of all ranks
/// (merged), not one rank's part. O(layers).
[[nodiscard]] std::vector<LayoutLine> canonical_layout(std::span<const KVCacheGroup> groups,
                                                       const LayoutContext& context);

/// The same for the groups of `config` and its retention interval.
[[nodiscard]] std::vector<LayoutLine> canonical_layout(const KVCacheConfig& config, const LayoutContext& context);

/// One line per fact, each ended by '\n': what is hashed and sent.
[[nodiscard]] std::string layout_text(std::span<const LayoutLine> lines);

/// Reads what layout_text wrote; lines without a value are refused (empty result). O(size).
[[nodiscard]] std::optional<std::vector<LayoutLine>> parse_layout_text(std::string_view text);

/// The first fact on which two layouts differ; empty values: the fact exists on one side only.
struct LayoutDifference {
  std::string field;
  std::string left;
  std::string right;
};

/// Empty when the layouts are equal. Order of reporting is that of `left`. O(lines).
[[nodiscard]] std::optional<LayoutDifference> first_difference(std::span<const LayoutLine> left,
                                                               std::span<const LayoutLine> right);

}  // namespace kvpool
