#include "stress/worker.hpp"

#include <algorithm>
#include <utility>

namespace kvpool::stress {
namespace {

constexpr std::uint64_t kNamedContent = std::uint64_t{1} << 63;  // content of published blocks, apart from private ones
constexpr std::uint64_t kChainNames = 64;

bool is_named(const HeldBlock& held) { return (held.content & kNamedContent) != 0; }

std::uint64_t scramble(std::uint64_t x) {
  x ^= x >> 33U;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33U;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33U);
}

std::vector<BlockHash> hashes_of(std::uint64_t chain, std::size_t length) {
  std::vector<BlockHash> hashes;
  hashes.reserve(length);
  for (std::size_t i = 0; i < length; ++i) hashes.push_back(key_of(chain * kChainNames + i).hash);
  return hashes;
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
  if (is_named(held)) return;
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

void Worker::pin_chain(std::uint64_t chain, std::size_t length, Holding& out) {
  if (below(2) == 0) {
    std::size_t pinned = 0;
    while (pinned < length && pin(chain * kChainNames + pinned, out)) ++pinned;
    return;
  }
  const std::vector<BlockHash> hashes = hashes_of(chain, length);
  std::vector<BlockHandle> found(length);
  found.resize(inside([&] { return pool_->find_prefix({hashes}, GroupId{}, found); }));
  count(Operation::find_prefix);
  auto reservation = inside([&] { return pool_->try_reserve(static_cast<std::uint32_t>(found.size())); });
  if (!reservation) reservation.emplace();
  const std::size_t pinned = inside([&] { return pool_->pin_prefix(found, {hashes}, GroupId{}, *reservation); });
  count(Operation::pin_prefix);
  if (pinned > found.size()) verdict_->fail("more blocks were pinned than were found");
  for (std::size_t i = 0; i < pinned; ++i) {
    const HeldBlock held{found[i].id, kNamedContent | (chain * kChainNames + i)};
    ledger_->share(held.block, held.content);
    out.push_back(held);
  }
}

void Worker::publish_chain(std::uint64_t chain, std::size_t first, Holding& holding) {
  if (below(2) == 0) {
    for (std::size_t i = first; i < holding.size(); ++i) publish(holding[i], chain * kChainNames + i);
    return;
  }
  const std::vector<BlockHash> hashes = hashes_of(chain, holding.size());
  std::vector<BlockId> blocks;
  for (std::size_t i = first; i < holding.size(); ++i) {
    holding[i].content = kNamedContent | (chain * kChainNames + i);
    ledger_->write(holding[i].block, holding[i].content);
    blocks.push_back(holding[i].block);
  }
  const HashChain rest{std::span(hashes).subspan(first)};
  const auto covered = static_cast<std::int64_t>(16 * first);
  inside([&] { return pool_->publish_chain(blocks, rest, GroupId{}, covered, 16); });
  count(Operation::publish_chain);
}

void Worker::release(Holding& holding) {
  std::vector<BlockId> blocks;
  for (auto held = holding.rbegin(); held != holding.rend(); ++held) {
    ledger_->expect(held->block, held->content);
    blocks.push_back(held->block);
  }
  const bool fenced = fencing_ == Fencing::always || (fencing_ == Fencing::sometimes && below(4) == 0);
  const std::uint64_t fence = fenced ? device_->submit(holding) : 0;
  for (const BlockId block : blocks) ledger_->leave(block);
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

void Worker::start_blank() {
  Holding holding;
  if (allocate(static_cast<std::uint32_t>(1 + below(8)), holding)) {
    if (below(2) == 0) publish(holding[0], below(256));
    alive_.push_back(std::move(holding));
  } else if (!alive_.empty()) {
    release_oldest();
  }
}

void Worker::share_published() {
  if (alive_.empty()) return;
  Holding shared;
  std::copy_if(alive_.back().begin(), alive_.back().end(), std::back_inserter(shared), is_named);
  if (shared.empty()) return;
  std::vector<BlockId> blocks;
  blocks.reserve(shared.size());
  for (const HeldBlock& held : shared) blocks.push_back(held.block);
  if (!inside([&] { return pool_->touch(blocks); })) verdict_->fail("a touch of held blocks was refused");
  count(Operation::touch, blocks.size());
  for (const HeldBlock& held : shared) ledger_->share(held.block, held.content);
  alive_.push_back(std::move(shared));
}

void Worker::evict_found() {
  std::vector<BlockHandle> found;
  if (below(2) == 0) {
    const auto one = inside([&] { return pool_->find(key_of(below(256))); });
    count(Operation::look_up);
    if (one) found.push_back(*one);
  } else {
    const std::vector<BlockHash> hashes = hashes_of(below(4), 1 + below(4));
    found.resize(hashes.size());
    found.resize(inside([&] { return pool_->find_prefix({hashes}, GroupId{}, found); }));
    count(Operation::find_prefix);
  }
  if (found.empty() || below(4) != 0) return;
  std::vector<BlockId> blocks;
  blocks.reserve(found.size());
  for (const BlockHandle& handle : found) blocks.push_back(handle.id);
  inside([&] { return pool_->evict_blocks(blocks); });
  count(Operation::evict, blocks.size());
}

void Worker::take_content_back() {
  if (alive_.empty()) return;
  const BlockId block = alive_.front().back().block;
  inside([&] { return pool_->unpublish(block); });
  count(Operation::unpublish);
}

void Worker::move_content() {
  if (alive_.empty()) return;
  const Holding& from = alive_.front();
  Holding& to = alive_.back();
  const auto source = std::find_if(from.begin(), from.end(), is_named);
  const auto target = std::find_if_not(to.begin(), to.end(), is_named);
  if (source == from.end() || target == to.end()) return;
  target->content = source->content;  // a copy, which is there before anybody can find it
  ledger_->write(target->block, target->content);
  inside([&] { return pool_->move_block_hashes(source->block, target->block); });
  count(Operation::move);
}

void Worker::run_device() {
  const ExecutedSteps steps = device_->execute_some();
  for (std::uint64_t step = steps.first; step < steps.last; ++step) {
    inside([&] {
      pool_->advance_fence(step);
      return true;
    });
    count(Operation::advance_fence);
  }
}

void Worker::request(std::uint64_t chain, std::size_t length) {
  Holding holding;
  pin_chain(chain, length, holding);
  const std::size_t hits = holding.size();
  if (hits < length && !allocate(static_cast<std::uint32_t>(length - hits), holding)) {
    if (!holding.empty()) release(holding);
    if (!alive_.empty()) release_oldest();
    return;
  }
  publish_chain(chain, hits, holding);
  alive_.push_back(std::move(holding));
}

void Worker::mixed_step() {
  switch (below(16)) {
    case 0:
    case 1:
    case 2: start_blank(); break;
    case 3:
    case 4: {
      Holding holding;
      if (pin(below(256), holding)) alive_.push_back(std::move(holding));
      break;
    }
    case 5:
    case 6:
      if (!alive_.empty()) publish(alive_.back()[0], below(256));
      break;
    case 7:
    case 8: request(below(4), 1 + below(8)); break;
    case 9: share_published(); break;
    case 10: evict_found(); break;
    case 11: take_content_back(); break;
    case 12: move_content(); break;
    default:
      if (!alive_.empty()) release_oldest();
  }
  if (below(16) == 0) run_device();
  if (alive_.size() > 16) release_oldest();
}

void Worker::prefix_step() {
  request(std::min(below(48), below(48)), 4 + below(12));  // some prefixes are asked for more often
  if (below(4) == 0) share_published();
  while (alive_.size() > 4) release_oldest();
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
  if (below(8) == 0) run_device();
}

}  // namespace kvpool::stress
