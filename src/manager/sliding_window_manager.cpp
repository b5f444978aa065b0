#include "manager/sliding_window_manager.hpp"

#include <algorithm>

#include "manager/joint_lookup.hpp"

namespace kvpool {
namespace {

void cut(GroupHits& hits, std::int64_t length) {
  for (std::vector<BlockHandle>& list : hits.lists) list.resize(static_cast<std::size_t>(length));
}

}  // namespace

GroupHits SlidingWindowManager::find_longest_cache_hit(const LookupQuery& query) const {
  const std::int64_t size = block_size();
  const auto stride = static_cast<std::size_t>(context().units_per_block());
  const HashChain chain{query.hashes, stride};
  const std::int64_t limit = std::min(query.max_length / size, static_cast<std::int64_t>(chain.size()));
  const std::int64_t needed = blocks_needed(query.drop_last);
  const auto aligned = [&](std::int64_t blocks) {
    return size == query.alignment || blocks * size % query.alignment == 0;
  };

  GroupHits hits;
  hits.lists.assign(query.groups.size(), std::vector<BlockHandle>(static_cast<std::size_t>(limit)));
  std::vector<BlockHandle> found(query.groups.size());
  std::int64_t run = 0;
  std::int64_t length = -1;
  for (std::int64_t i = limit - 1; i >= 0 && length < 0; --i) {
    if (!find_in_all(pool(), chain[static_cast<std::size_t>(i)], query.groups, found)) {
      run = 0;
      continue;
    }
    if (run == 0 && !aligned(query.drop_last ? i : i + 1)) continue;  // no hit may end here
    for (std::size_t g = 0; g < found.size(); ++g) hits.lists[g][static_cast<std::size_t>(i)] = found[g];
    if (++run >= needed) length = i + run;
  }
  if (length < 0) {
    length = run;  // a run that reaches token 0 needs nothing before it
    while (!aligned(length)) --length;
  }
  if (query.drop_last && length > 0) {
    --length;
    while (!aligned(length)) --length;
  }
  cut(hits, length);
  hits.length = length * size;
  return hits;
}

std::int64_t SlidingWindowManager::skipped_tokens(std::int64_t processed) const noexcept {
  return std::max<std::int64_t>(0, processed - window_ + 1 - extra_retained_tokens_);
}

// A later hit can end only at a multiple of the alignment (dense), at a checkpoint (interval) or at a
// boundary; it needs one window of blocks before that, and with draft models one block behind it.
RetentionMask SlidingWindowManager::reachable_blocks(std::int64_t begin, std::int64_t end,
                                                     std::span<const std::int64_t> boundaries) const {
  const std::int64_t alignment = context().scheduler_block_size;
  const std::int64_t needed = blocks_needed(use_eagle());
  const std::int64_t shift = use_eagle() ? 1 : 0;
  const std::optional<std::int64_t>& interval = context().retention_interval;
  const std::int64_t segment = interval.value_or(alignment);
  RetentionMask mask = RetentionMask::nothing_of(begin, end);
  if (segment > 0) {
    const std::int64_t period = segment / block_size();
    if (needed >= period) return RetentionMask::everything();
    for (std::int64_t i = std::max(begin, shift); i < end; ++i) {
      if ((i - shift) % period >= period - needed) mask.keep(i);
    }
  }
  if (interval) {
    for (const std::int64_t boundary : boundaries) {
      const std::int64_t tail = boundary / alignment * alignment / block_size() + shift;
      mask.keep_range(tail - needed, tail);
    }
  }
  return mask;
}

}  // namespace kvpool
