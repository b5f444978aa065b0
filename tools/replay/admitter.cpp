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
  for (std::size_t i = 0; i < hits_; ++i) {
    if (!pool_.pin(found_[i], key(request, i), *reservation)) {
      table.resize(i);
      release(table);
      return Taken::lost;
    }
    table[i] = found_[i].id;
  }
  if (reservation->remaining() < blocks - hits_) {  // a hit lost its last reference since it was counted
    table.resize(hits_);
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
  std::uint64_t kept = 0;
  for (std::size_t i = hits_; i < request.keys.size(); ++i) {
    const bool is_kept = pool_.publish(table[i], key(request, i), static_cast<std::int64_t>(i + 1) * block_size_);
    kept += is_kept ? 1U : 0U;
    if (!carries_key_.empty()) {
      carries_key_[table[i].value()] = is_kept ? 1 : 0;
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
