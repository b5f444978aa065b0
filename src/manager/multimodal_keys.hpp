// Which multimodal items a span of tokens overlaps, and where they start.
#pragma once

#include <cstdint>
#include <span>

#include "kvpool/manager/request.hpp"

namespace kvpool {

/// Appends one key for each of `items` (sorted by offset, not overlapping) that overlaps tokens [start, end).
/// `cursor` says where to begin, -1 being the last item, and is moved to the item to begin with for the tokens
/// that follow `end`.
void append_multimodal_keys(std::span<const MultimodalFeature> items, std::int64_t start, std::int64_t end,
                            std::int64_t& cursor, ExtraKeys& keys);

}  // namespace kvpool
