#include "kvpool/pool/block_pool.hpp"

#include <atomic>
#include <string>

#include "kvpool/foundation/contract.hpp"
#include "pool/queue_pool.hpp"

namespace kvpool {

namespace {
std::uint16_t next_pool_number() {
  static std::atomic<std::uint16_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed);
}
void report(ContractBreach breach, const char* where, BlockId id) {
  report_contract_violation({breach, std::string(where) + ": block " + std::to_string(id.value())});
}
void report(QueuePool::Fault fault, const char* where, BlockId id) {
  report(fault == QueuePool::Fault::double_free    ? ContractBreach::double_free
         : fault == QueuePool::Fault::ref_overflow ? ContractBreach::ref_overflow
                                                   : ContractBreach::unknown_block,
         where, id);
}
}  // namespace

struct BlockPool::Impl {
  explicit Impl(const BlockPoolOptions& o) : options(o), pool(o), number(next_pool_number()) {}
  [[nodiscard]] bool known(BlockId id, const char* where) const {
    if (id.value() < options.num_blocks) return true;
    report(ContractBreach::unknown_block, where, id);
    return false;
  }
  BlockPoolOptions options;
  QueuePool pool;
  std::uint16_t number;
};

Reservation::Reservation(Reservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), remaining_(std::exchange(other.remaining_, 0)) {}
Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    give_back(remaining_);
    pool_ = std::exchange(other.pool_, nullptr);
    remaining_ = std::exchange(other.remaining_, 0);
  }
  return *this;
}
Reservation::~Reservation() { give_back(remaining_); }
void Reservation::give_back(std::uint32_t count) noexcept {
  if (pool_ == nullptr || count == 0) return;
  remaining_ -= count;
  pool_->impl_->pool.give_back(count);
}

BlockPool::BlockPool(const BlockPoolOptions& options) : impl_(std::make_unique<Impl>(options)) {}
BlockPool::~BlockPool() = default;
const BlockPoolOptions& BlockPool::options() const noexcept { return impl_->options; }
std::uint32_t BlockPool::num_blocks() const noexcept { return impl_->options.num_blocks; }
std::uint32_t BlockPool::num_free_blocks() const noexcept { return impl_->pool.num_free(); }
double BlockPool::usage() const noexcept {
  if (num_blocks() <= 1) return 0.0;
  return 1.0 - static_cast<double>(num_free_blocks()) / static_cast<double>(num_blocks() - 1);
}
PoolCounts BlockPool::counts() const noexcept { return impl_->pool.counts(); }
PoolStats BlockPool::stats() const noexcept { return impl_->pool.stats(); }

std::optional<Reservation> BlockPool::try_reserve(std::uint32_t count, std::uint32_t keep_free) {
  if (!impl_->pool.reserve(count, keep_free)) return std::nullopt;
  return Reservation(this, count);
}
void BlockPool::allocate(Reservation& reservation, std::span<BlockId> out) {
  impl_->pool.allocate(out);
  reservation.remaining_ -= static_cast<std::uint32_t>(out.size());
}
bool BlockPool::get_new_blocks(std::span<BlockId> out) {
  if (out.size() >= num_blocks()) return false;
  auto reservation = try_reserve(static_cast<std::uint32_t>(out.size()));
  if (!reservation) return false;
  allocate(*reservation, out);
  return true;
}
bool BlockPool::touch(std::span<const BlockId> blocks) {
  QueuePool::Fault fault = QueuePool::Fault::none;
  const bool done = impl_->pool.touch(blocks, fault);
  if (fault != QueuePool::Fault::none) report(fault, "touch", blocks.front());
  return done;
}
bool BlockPool::pin(BlockHandle block, const BlockKey& key, Reservation& reservation) {
  if (block.is_null()) return true;
  if (block.pool != impl_->number) {
    report(ContractBreach::foreign_handle, "pin", block.id);
    return false;
  }
  if (!impl_->known(block.id, "pin")) return false;
  const auto outcome = impl_->pool.pin(block.id, block.generation, key, reservation.remaining_ > 0);
  if (outcome == QueuePool::Pin::from_free) --reservation.remaining_;
  return outcome != QueuePool::Pin::refused;
}
bool BlockPool::free_blocks(std::span<const BlockId> blocks) { return free_blocks(blocks, 0); }
bool BlockPool::free_blocks(std::span<const BlockId> blocks, std::uint64_t fence) {
  return impl_->pool.release(blocks, fence,
                             [](BlockId id, QueuePool::Fault fault) { report(fault, "free_blocks", id); });
}
void BlockPool::advance_fence(std::uint64_t value) { impl_->pool.advance_fence(value); }

std::optional<BlockHandle> BlockPool::find(const BlockKey& key) const {
  const auto hit = impl_->pool.find(key);
  if (!hit) return std::nullopt;
  return BlockHandle{hit->first, hit->second, impl_->number};
}
std::size_t BlockPool::find_prefix(HashChain chain, GroupId group, std::span<BlockHandle> out) const {
  std::size_t length = 0;
  for (; length < chain.size() && length < out.size(); ++length) {
    const auto hit = find({chain[length], group});
    if (!hit) break;
    out[length] = *hit;
  }
  return length;
}
void BlockPool::prefetch(const BlockKey&) const noexcept {}
bool BlockPool::publish(BlockId block, const BlockKey& key, std::int64_t covered_tokens) {
  return impl_->known(block, "publish") && impl_->pool.publish(block, key, covered_tokens);
}
bool BlockPool::unpublish(BlockId block) { return impl_->known(block, "unpublish") && impl_->pool.unpublish(block); }
bool BlockPool::evict_blocks(std::span<const BlockId> blocks) {
  bool good = true;
  for (const BlockId block : blocks) {
    if (!impl_->known(block, "evict_blocks")) {
      good = false;
    } else {
      impl_->pool.unpublish(block);
    }
  }
  return good;
}
void BlockPool::move_block_hashes(BlockId source, BlockId target) {
  if (impl_->known(source, "move_block_hashes") && impl_->known(target, "move_block_hashes")) {
    impl_->pool.move_keys(source, target);
  }
}
bool BlockPool::reset_prefix_cache() { return impl_->pool.reset(); }
std::optional<BlockKey> BlockPool::primary_key(BlockId block) const {
  const auto copy = impl_->pool.block(block);
  if (copy.keys.empty()) return std::nullopt;
  return copy.keys.front();
}
std::int64_t BlockPool::covered_tokens(BlockId block) const { return impl_->pool.block(block).covered; }
bool BlockPool::has_key(BlockId block, const BlockKey& key) const {
  const auto copy = impl_->pool.block(block);
  return std::find(copy.keys.begin(), copy.keys.end(), key) != copy.keys.end();
}
bool BlockPool::is_block_writable(BlockId block) const noexcept {
  const auto copy = impl_->pool.block(block);
  return block != kNullBlock && copy.refs == 1 && copy.keys.empty();
}
std::uint32_t BlockPool::ref_count(BlockId block) const noexcept { return impl_->pool.block(block).refs; }
BlockHandle BlockPool::handle(BlockId block) const noexcept {
  return {block, impl_->pool.block(block).generation, impl_->number};
}
void BlockPool::append_event(KVEvent event) { impl_->pool.append_event(std::move(event)); }
std::vector<KVEvent> BlockPool::take_events() { return impl_->pool.take_events(); }

BlockSnapshot BlockPool::snapshot(BlockId block) const {
  const auto copy = impl_->pool.block(block);
  BlockSnapshot shot;
  shot.id = block;
  shot.ref_count = copy.refs;
  shot.generation = copy.generation;
  shot.primary_key = primary_key(block);
  shot.covered_tokens = copy.covered;
  shot.free = copy.queued;
  shot.fenced = copy.fenced;
  shot.is_null = block == kNullBlock;
  return shot;
}
std::vector<BlockId> BlockPool::free_order() const { return impl_->pool.free_order(); }
std::size_t BlockPool::num_cached_keys() const { return impl_->pool.num_keys(); }
Status BlockPool::check_invariants() const {
  const PoolCounts counts = impl_->pool.counts();
  if (counts.free + counts.reserved + counts.referenced + counts.fenced != counts.usable) {
    return {ErrorCode::internal, "free, reserved, referenced and fenced blocks do not add up"};
  }
  return {};
}

}  // namespace kvpool
