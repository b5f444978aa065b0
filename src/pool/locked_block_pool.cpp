#include "kvpool/pool/locked_block_pool.hpp"

#include <utility>

#include "pool/locked_pool_core.hpp"
#include "pool/reservation_check.hpp"

namespace kvpool {

struct LockedBlockPool::Impl {
  explicit Impl(const BlockPoolOptions& options) : pool(options) {}
  LockedPoolCore pool;
};

// --- LockedReservation ---------------------------------------------------------------------------------------

LockedReservation::LockedReservation(LockedReservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), remaining_(std::exchange(other.remaining_, 0)) {}

LockedReservation& LockedReservation::operator=(LockedReservation&& other) noexcept {
  if (this != &other) {
    give_back(remaining_);
    pool_ = std::exchange(other.pool_, nullptr);
    remaining_ = std::exchange(other.remaining_, 0);
  }
  return *this;
}

LockedReservation::~LockedReservation() { give_back(remaining_); }

void LockedReservation::give_back(std::uint32_t count) noexcept {
  if (pool_ == nullptr || count == 0) return;
  if (!covers(true, remaining_, count, "give_back")) count = remaining_;
  remaining_ -= count;
  pool_->impl_->pool.give_back(count);
}

// --- capacity ------------------------------------------------------------------------------------------

LockedBlockPool::LockedBlockPool(const BlockPoolOptions& options) : impl_(std::make_unique<Impl>(options)) {}
LockedBlockPool::~LockedBlockPool() = default;

const BlockPoolOptions& LockedBlockPool::options() const noexcept { return impl_->pool.options(); }
std::uint32_t LockedBlockPool::num_blocks() const noexcept { return impl_->pool.num_blocks(); }
std::uint32_t LockedBlockPool::num_free_blocks() const noexcept { return impl_->pool.num_free_blocks(); }

double LockedBlockPool::usage() const noexcept {
  if (num_blocks() == 1) return 0.0;
  return 1.0 - (static_cast<double>(num_free_blocks()) / static_cast<double>(num_blocks() - 1));
}

PoolCounts LockedBlockPool::counts() const noexcept { return impl_->pool.counts(); }
PoolStats LockedBlockPool::stats() const noexcept { return impl_->pool.stats(); }
std::vector<PoolStats> LockedBlockPool::shard_stats() const { return impl_->pool.shard_stats(); }

std::optional<LockedReservation> LockedBlockPool::try_reserve(std::uint32_t count, std::uint32_t keep_free) {
  if (!impl_->pool.try_reserve(count, keep_free)) return std::nullopt;
  return LockedReservation(this, count);
}

// --- references ----------------------------------------------------------------------------------------

bool LockedBlockPool::allocate(LockedReservation& reservation, std::span<BlockId> out) {
  if (!covers(reservation.pool_ == this, reservation.remaining_, out.size(), "allocate")) return false;
  impl_->pool.allocate(out);
  reservation.remaining_ -= static_cast<std::uint32_t>(out.size());
  return true;
}
bool LockedBlockPool::get_new_blocks(std::span<BlockId> out) { return impl_->pool.get_new_blocks(out); }
bool LockedBlockPool::touch(std::span<const BlockId> blocks) { return impl_->pool.touch(blocks); }
bool LockedBlockPool::pin(BlockHandle block, const BlockKey& key, LockedReservation& reservation) {
  return covers(reservation.pool_ == this, reservation.remaining_, 0, "pin") &&
         impl_->pool.pin(block, key, reservation.remaining_);
}
std::size_t LockedBlockPool::pin_prefix(std::span<const BlockHandle> blocks, HashChain chain, GroupId group,
                                        LockedReservation& reservation) {
  if (!covers(reservation.pool_ == this, reservation.remaining_, 0, "pin_prefix")) return 0;
  return impl_->pool.pin_prefix(blocks, chain, group, reservation.remaining_);
}
bool LockedBlockPool::free_blocks(std::span<const BlockId> blocks) { return impl_->pool.free_blocks(blocks); }
bool LockedBlockPool::free_blocks(std::span<const BlockId> blocks, std::uint64_t fence) {
  return impl_->pool.free_blocks(blocks, fence);
}
bool LockedBlockPool::free_blocks(std::span<const BlockHandle> blocks) { return impl_->pool.free_blocks(blocks); }
void LockedBlockPool::advance_fence(std::uint64_t value) { impl_->pool.advance_fence(value); }

// --- content -------------------------------------------------------------------------------------------

std::optional<BlockHandle> LockedBlockPool::find(const BlockKey& key) const { return impl_->pool.find(key); }
std::size_t LockedBlockPool::find_prefix(HashChain chain, GroupId group, std::span<BlockHandle> out) const {
  return impl_->pool.find_prefix(chain, group, out);
}
void LockedBlockPool::prefetch(const BlockKey& /*key*/) const noexcept {}
bool LockedBlockPool::publish(BlockId block, const BlockKey& key, std::int64_t covered_tokens) {
  return impl_->pool.publish(block, key, covered_tokens);
}
std::size_t LockedBlockPool::publish_chain(std::span<const BlockId> blocks, HashChain chain, GroupId group,
                                           std::int64_t tokens_before, std::int64_t block_tokens) {
  return impl_->pool.publish_chain(blocks, chain, group, tokens_before, block_tokens);
}
bool LockedBlockPool::unpublish(BlockId block) { return impl_->pool.unpublish(block); }
bool LockedBlockPool::evict_blocks(std::span<const BlockId> blocks) { return impl_->pool.evict_blocks(blocks); }
bool LockedBlockPool::move_block_hashes(BlockId source, BlockId target) {
  return impl_->pool.move_block_hashes(source, target);
}
bool LockedBlockPool::reset_prefix_cache(std::uint32_t num_permanent) {
  return impl_->pool.reset_prefix_cache(num_permanent);
}
std::optional<BlockKey> LockedBlockPool::primary_key(BlockId block) const { return impl_->pool.primary_key(block); }
std::int64_t LockedBlockPool::covered_tokens(BlockId block) const { return impl_->pool.covered_tokens(block); }
bool LockedBlockPool::has_key(BlockId block, const BlockKey& key) const { return impl_->pool.has_key(block, key); }
bool LockedBlockPool::is_block_writable(BlockId block) const noexcept { return impl_->pool.is_block_writable(block); }
std::uint32_t LockedBlockPool::ref_count(BlockId block) const noexcept { return impl_->pool.ref_count(block); }
std::optional<std::uint64_t> LockedBlockPool::sharing_changes() const noexcept { return impl_->pool.sharing_changes(); }
BlockHandle LockedBlockPool::handle(BlockId block) const noexcept { return impl_->pool.handle(block); }

// --- events and inspection -----------------------------------------------------------------------------

void LockedBlockPool::append_event(KVEvent event) { impl_->pool.append_event(std::move(event)); }
void LockedBlockPool::append_event(EventDraft&& draft) { impl_->pool.append_event(std::move(draft)); }
EventDraft LockedBlockPool::draft_event() { return impl_->pool.draft_event(); }
std::vector<KVEvent> LockedBlockPool::take_events() { return impl_->pool.take_events(); }
EventBatch LockedBlockPool::take_event_batch() noexcept { return impl_->pool.take_event_batch(); }
BlockSnapshot LockedBlockPool::snapshot(BlockId block) const { return impl_->pool.snapshot(block); }
std::vector<BlockId> LockedBlockPool::free_order() const { return impl_->pool.free_order(); }
std::size_t LockedBlockPool::num_cached_keys() const { return impl_->pool.num_cached_keys(); }
Status LockedBlockPool::check_invariants() const { return impl_->pool.check_invariants(); }

}  // namespace kvpool
