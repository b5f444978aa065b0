#include "stress/worker.hpp"

#include <algorithm>
#include <utility>

namespace kvpool::stress {
namespace {

constexpr std::uint64_t kNamedContent = std::uint64_t{1} << 63;  // content of published blocks, apart from private ones

std::uint64_t scramble(std::uint64_t x) {
  x ^= x >> 33U;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33U;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33U);
}

}  // namespace

BlockKey key_of(std::uint64_t name) {
  BlockKey key;
  key.hash.size = 32;
  for (std::size_t i = 0; i < 32; i += 8) {
    const std::uint64_t word = scramble(name * 4 + i);
    for (std::size_t j = 0; j < 8; ++j) key.hash.bytes[i + j] = static_cast<std::uint8_t>(word >> (8 * j));
  }
  return key;
}

template <class Call>
auto Worker::inside(Call call) {
  progress_->inside_pool.store(true, std::memory_order_relaxed);
  auto result = call();
  progress_->inside_pool.store(false, std::memory_order_relaxed);
  return result;
}

bool Worker::allocate(std::uint32_t count_wanted, Holding& out) {
  std::vector<BlockId> blocks(count_wanted);
  const bool granted = inside([&] { return pool_->get_new_blocks(blocks); });
  count(Operation::allocate, granted ? count_wanted : 1);
  if (!granted) return false;
  for (const BlockId block : blocks) {
    if (block == kNullBlock) verdict_->fail("the null block was allocated");
    const std::uint64_t content = (std::uint64_t{number_} << 40U) | next_content_++;
    ledger_->own(block, content);
    out.push_back({block, content});
  }
  return true;
}

void Worker::publish(HeldBlock& held, std::uint64_t name) {
  if ((held.content & kNamedContent) != 0) return;
  held.content = kNamedContent | name;
  ledger_->write(held.block, held.content);
  inside([&] { return pool_->publish(held.block, key_of(name), 16); });
  count(Operation::publish);
}

bool Worker::pin(std::uint64_t name, Holding& out) {
  const BlockKey key = key_of(name);
  const auto found = inside([&] { return pool_->find(key); });
  count(Operation::look_up);
  if (!found) return false;
  auto reservation = inside([&] { return pool_->try_reserve(1); });
  if (!reservation) reservation.emplace();
  const bool pinned = inside([&] { return pool_->pin(*found, key, *reservation); });
  count(Operation::pin);
  if (!pinned) return false;
  ledger_->share(found->id, kNamedContent | name);
  out.push_back({found->id, kNamedContent | name});
  return true;
}

std::size_t Worker::pin_chain(std::uint64_t chain, std::size_t length, Holding& out) {
  std::size_t pinned = 0;
  while (pinned < length && pin(chain * 64 + pinned, out)) ++pinned;
  return pinned;
}

void Worker::release(Holding& holding) {
  std::vector<BlockId> blocks;
  for (auto held = holding.rbegin(); held != holding.rend(); ++held) {
    ledger_->expect(held->block, held->content);
    blocks.push_back(held->block);
  }
  const std::uint64_t fence = device_ != nullptr ? device_->submit(holding, *ledger_) : 0;
  for (const BlockId block : blocks) ledger_->leave(block);
  const bool fenced = device_ != nullptr;
  if (!inside([&] { return fenced ? pool_->free_blocks(blocks, fence) : pool_->free_blocks(blocks); })) {
    verdict_->fail("a release of held blocks was refused");
  }
  count(Operation::release, blocks.size());
  holding.clear();
}

void Worker::release_oldest() {
  release(alive_.front());
  alive_.pop_front();
}

void Worker::release_everything() {
  while (!alive_.empty()) release_oldest();
}

void Worker::mixed_step() {
  switch (below(6)) {
    case 0:
    case 1: {
      Holding holding;
      if (allocate(static_cast<std::uint32_t>(1 + below(8)), holding)) {
        if (below(2) == 0) publish(holding[0], below(256));
        alive_.push_back(std::move(holding));
      } else if (!alive_.empty()) {
        release_oldest();
      }
      break;
    }
    case 2: {
      Holding holding;
      if (pin(below(256), holding)) alive_.push_back(std::move(holding));
      break;
    }
    case 3:
      if (!alive_.empty()) publish(alive_.back()[0], below(256));
      break;
    case 4: {
      const auto found = inside([&] { return pool_->find(key_of(below(256))); });
      count(Operation::look_up);
      if (found && below(4) == 0) {
        const BlockId block = found->id;
        inside([&] { return pool_->evict_blocks({&block, 1}); });
        count(Operation::evict);
      }
      break;
    }
    default:
      if (!alive_.empty()) release_oldest();
  }
  if (alive_.size() > 16) release_oldest();
}

void Worker::prefix_step() {
  const std::uint64_t chain = std::min(below(48), below(48));  // some prefixes are asked for more often
  const std::size_t length = 4 + below(12);
  Holding holding;
  const std::size_t hits = pin_chain(chain, length, holding);
  if (hits < length && !allocate(static_cast<std::uint32_t>(length - hits), holding)) {
    if (!holding.empty()) release(holding);
    if (!alive_.empty()) release_oldest();
    return;
  }
  for (std::size_t i = hits; i < length; ++i) publish(holding[i], chain * 64 + i);
  alive_.push_back(std::move(holding));
  if (alive_.size() > 4) release_oldest();
}

void Worker::pressure_step() {
  const std::uint32_t usable = pool_->num_blocks() - 1;
  Holding holding;
  const auto wanted = static_cast<std::uint32_t>(1 + below(usable));
  if (allocate(wanted, holding)) {
    if (holding.size() != wanted) verdict_->fail("an allocation was granted in part");
    for (HeldBlock& held : holding) {
      if (below(4) == 0) publish(held, below(1024));
    }
    release(holding);
  }
  if (pool_->num_free_blocks() > usable) verdict_->fail("more blocks are free than there are");
  if (pin(below(1024), holding)) release(holding);
}

void Worker::fence_step() {
  prefix_step();
  if (below(8) == 0) device_->run_some(*pool_, *ledger_, *verdict_);
}

}  // namespace kvpool::stress
