#include "manager/multimodal_keys.hpp"

namespace kvpool {

void append_multimodal_keys(std::span<const MultimodalFeature> items, std::int64_t start, std::int64_t end,
                            std::int64_t& cursor, ExtraKeys& keys) {
  if (items.empty() || items.back().offset + items.back().length <= start) return;
  const auto count = static_cast<std::int64_t>(items.size());
  if (cursor < 0) cursor += count;
  while (cursor < count) {
    const MultimodalFeature& item = items[static_cast<std::size_t>(cursor)];
    const std::int64_t item_end = item.offset + item.length;
    if (end <= item.offset) return;
    if (start < item_end) keys.emplace_back(MultimodalKey{item.identifier, item.offset - start});
    if (end < item_end) return;  // the item goes on behind this span
    ++cursor;
  }
}

}  // namespace kvpool
