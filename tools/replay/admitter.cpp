#include "tools/replay/admitter.hpp"

#include <algorithm>
#include <utility>

namespace kvpool::tools {

std::size_t Admitter::look_up(const RequestKeys& request) {
  if (found_.size() < request.readable) {
    found_.resize(request.readable);
  }
  const HashChain chain{std::span(request.keys).first(request.readable), 1};
  hits_ = pool_.find_prefix(chain, GroupId{0}, std::span(found_).first(request.readable));
  return hits_;
}

std::size_t Admitter::unreferenced_hits() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(hits_),
                    [this](const BlockHandle& block) { return pool_.ref_count(block.id) == 0; }));
}

Taken Admitter::take(const RequestKeys& request, std::vector<BlockId>& table) {
  const auto blocks = static_cast<std::size_t>(request.blocks);
  auto reservation = pool_.try_reserve(static_cast<std::uint32_t>(blocks - hits_ + unreferenced_hits()));
  if (!reservation) {
    return Taken::no_room;
  }
  table.resize(blocks);
  const HashChain chain{std::span(request.keys).first(hits_), 1};
  const std::size_t pinned = pool_.pin_prefix(std::span(found_).first(hits_), chain, GroupId{0}, *reservation);
  std::transform(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(pinned), table.begin(),
                 [](const BlockHandle& block) { return block.id; });
  // A hit was recycled, or lost its last reference since it was counted.
  if (pinned < hits_ || reservation->remaining() < blocks - hits_) {
    table.resize(pinned);
    release(table);
    return Taken::lost;
  }
  const auto fresh = std::span(table).subspan(hits_);
  pool_.allocate(*reservation, fresh);
  if (!carries_key_.empty()) {
    for (const BlockId block : fresh) {
      evictions_ += std::exchange(carries_key_[block.value()], std::uint8_t{0});
    }
  }
  return Taken::all;
}

std::uint64_t Admitter::publish(const RequestKeys& request, std::span<const BlockId> table) {
  if (request.keys.size() <= hits_) {
    return 0;
  }
  const HashChain chain{std::span(request.keys).subspan(hits_), 1};
  const auto fresh = table.subspan(hits_, chain.size());
  const std::uint64_t kept =
      pool_.publish_chain(fresh, chain, GroupId{0}, static_cast<std::int64_t>(hits_) * block_size_, block_size_);
  if (!carries_key_.empty()) {
    for (const BlockId block : fresh) {
      carries_key_[block.value()] = kept == fresh.size() || pool_.covered_tokens(block) > 0 ? 1 : 0;
    }
  }
  return kept;
}

void Admitter::release(std::vector<BlockId>& table) {
  reversed_.assign(table.rbegin(), table.rend());
  (void)pool_.free_blocks(reversed_);
  table.clear();
}

}  // namespace kvpool::tools
