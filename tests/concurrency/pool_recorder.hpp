// One thread's calls into a tiny pool, chosen at random and written down.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "stress/history.hpp"
#include "tests/concurrency/pool_workload.hpp"

namespace kvpool::testing {

using stress::Action;
using stress::CallKind;
using stress::Moment;

constexpr std::uint32_t kKeys = 3;
constexpr std::uint64_t kNever = ~std::uint64_t{0} - 1;

/// One counter that every thread draws its moments from. A call that begins after another has returned also sees what
/// that one did, so the draws acquire and release.
class Clock {
 public:
  Moment tick() { return now_.fetch_add(1, std::memory_order_acq_rel); }

 private:
  std::atomic<Moment> now_{1};
};

/// One thread's calls into a tiny pool, written down.
template <class Pool>
class Recorder {
 public:
  Recorder(std::uint32_t number, std::uint64_t seed) : number_(number), random_(seed * 1'000'003 + number) {}

  void play(Pool& pool, Clock& clock, bool with_fences) {
    pool_ = &pool;
    clock_ = &clock;
    for (int i = 0; i < 12; ++i) step(with_fences);
    release(0, held_.size());
  }
  [[nodiscard]] stress::History take() { return std::exchange(history_, {}); }

 private:
  using Names = std::vector<std::uint32_t>;
  using Blocks = std::vector<BlockId>;
  struct Held {
    BlockId block;
    std::uint32_t key;  ///< 0: never had one
  };
  /// Of a block that has lost its key in this thread's hands: others who hold it must not see it come back with
  /// another.
  static constexpr std::uint32_t kSpent = ~std::uint32_t{0};

  void step(bool with_fences) {
    switch (random_() % (with_fences ? 14 : 12)) {
      case 0:
      case 1:
      case 2: allocate(static_cast<std::uint32_t>(1 + random_() % 3)); break;
      case 3: pin(name()); break;
      case 4: pin_prefix(names()); break;
      case 5: look_up(names()); break;
      case 6: evict(name()); break;
      case 7: evict_several(names()); break;
      case 8:
      case 9: move_keys(); break;
      case 10: release(0, held_.size()); break;
      case 11: release(0, (held_.size() + 1) / 2); break;
      case 12: release(1 + random_() % 3, held_.size()); break;
      default: advance(1 + random_() % 3);
    }
  }
  std::uint32_t name() { return 1 + static_cast<std::uint32_t>(random_() % kKeys); }
  /// Two or three different keys.
  Names names() {
    Names chosen{name()};
    for (std::size_t length = 2 + random_() % 2; chosen.size() < length;) chosen.push_back(1 + chosen.back() % kKeys);
    return chosen;
  }
  static std::vector<BlockHash> hashes_of(const Names& names) {
    std::vector<BlockHash> hashes;
    for (const std::uint32_t name : names) hashes.push_back(make_key(name).hash);
    return hashes;
  }

  void allocate(std::uint32_t count) {
    Blocks blocks(count);
    const Moment invoked = clock_->tick();
    const bool granted = pool_->get_new_blocks(blocks);
    const Moment returned = clock_->tick();
    history_.allocations.push_back({count, granted, number_, invoked, returned});
    if (!granted) blocks.clear();
    note({CallKind::allocate, granted, count, {}, 0, {}, invoked, returned}, blocks);
    for (const BlockId block : blocks) {
      note(Action::claim, block, 0, invoked, returned);
      held_.push_back({block, 0});
    }
    if (!granted) return;
    if (count > 1 && !skips_duplicates() && random_() % 2 == 0) {
      publish_chain(count);
    } else if (random_() % 2 == 0) {
      publish(held_.back(), name());
    }
  }
  [[nodiscard]] bool skips_duplicates() const { return pool_->options().duplicates == DuplicatePolicy::skip; }
  void publish(Held& held, std::uint32_t key) {
    const Moment invoked = clock_->tick();
    const bool published = pool_->publish(held.block, make_key(key), 1);
    const Moment returned = clock_->tick();
    EXPECT_TRUE(published || skips_duplicates()) << "an owner's publish was refused";
    held.key = published ? key : kSpent;
    note(published ? Action::publish : Action::publish_in_vain, held.block, key, invoked, returned);
    note({CallKind::publish, published, 0, {key}, 0, {}, invoked, returned}, {held.block});
  }
  /// The last `count` blocks get keys in one call. The pool says how many were kept, and not which, so that this is not
  /// for pools that skip duplicates.
  void publish_chain(std::size_t count) {
    Names keys = names();
    keys.resize(std::min(count, keys.size()));
    const auto hashes = hashes_of(keys);
    const std::span<Held> last = std::span(held_).last(keys.size());
    Blocks blocks;
    for (const Held& held : last) blocks.push_back(held.block);
    const Moment invoked = clock_->tick();
    const std::size_t published = pool_->publish_chain(blocks, HashChain{hashes}, GroupId{0}, 0, 1);
    const Moment returned = clock_->tick();
    EXPECT_EQ(published, keys.size()) << "a part of an owner's chain was refused";
    history_.chains.push_back({history_.actions.size(), keys.size()});
    for (std::size_t i = 0; i < keys.size(); ++i) {
      last[i].key = keys[i];
      note(Action::publish, blocks[i], keys[i], invoked, returned);
    }
    note({CallKind::publish, true, 0, keys, 0, {}, invoked, returned}, blocks);
  }
  void pin(std::uint32_t key) {
    const Moment invoked = clock_->tick();
    auto found = pool_->find(make_key(key));
    bool pinned = false;
    while (found) {  // a handle that was recycled says nothing about other copies: look again
      const bool is_free = pool_->ref_count(found->id) == 0;
      auto units = pool_->try_reserve(is_free ? 1 : 0);
      const bool covered = units.has_value();
      if (!covered) units = pool_->try_reserve(0);
      pinned = pool_->pin(*found, make_key(key), *units);
      if (pinned) break;
      const auto again = pool_->find(make_key(key));
      if (again == found && !covered) break;  // there, and not to be had: no capacity
      found = again;
    }
    const Moment returned = clock_->tick();
    if (!pinned) {
      history_.misses.push_back({key, number_, invoked, returned});
      note({CallKind::pin, false, 0, {key}, 0, {}, invoked, returned}, {});
      return;
    }
    note(Action::pin, found->id, key, invoked, returned);
    note({CallKind::pin, true, 0, {key}, 0, {}, invoked, returned}, {found->id});
    held_.push_back({found->id, key});
  }
  /// The longest prefix that can be had, a batch at a time: what a look-up of all that is left found.
  void pin_prefix(const Names& keys) {
    const auto hashes = hashes_of(keys);
    std::vector<BlockHandle> found(keys.size());
    Blocks blocks;
    std::uint32_t units_beside = 0;  // held at one time for blocks that were found and not reached
    const Moment invoked = clock_->tick();
    for (BlockHandle refused{}; blocks.size() < keys.size();) {
      const HashChain rest{std::span(hashes).subspan(blocks.size())};
      const std::size_t length = pool_->find_prefix(rest, GroupId{0}, found);
      if (length == 0) break;
      const auto batch = std::span(found).first(length);
      const auto free = std::count_if(batch.begin(), batch.end(),
                                      [this](const BlockHandle& hit) { return pool_->ref_count(hit.id) == 0; });
      auto wanted = static_cast<std::uint32_t>(free);
      auto units = pool_->try_reserve(wanted);
      const bool covered = units.has_value();
      while (!units) units = pool_->try_reserve(--wanted);
      const std::size_t pinned = pool_->pin_prefix(batch, rest, GroupId{0}, *units);
      for (std::size_t i = 0; i < pinned; ++i) blocks.push_back(batch[i].id);
      if (pinned == length) continue;
      units_beside = std::max(units_beside, static_cast<std::uint32_t>(length - pinned) - 1);
      if (pinned == 0 && !covered && batch[0] == refused) break;  // still there and not to be had: no capacity
      refused = batch[pinned];
    }
    const Moment returned = clock_->tick();
    const bool all = blocks.size() == keys.size();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      note(Action::pin, blocks[i], keys[i], invoked, returned);
      held_.push_back({blocks[i], keys[i]});
    }
    if (!all) history_.misses.push_back({keys[blocks.size()], number_, invoked, returned});
    if (units_beside > 0) history_.withheld.push_back({units_beside, invoked, returned});
    note({CallKind::pin_prefix, all, 0, keys, 0, {}, invoked, returned}, blocks);
  }
  /// What it finds is a hint; what it misses, no block had all the time.
  void look_up(const Names& keys) {
    const auto hashes = hashes_of(keys);
    std::vector<BlockHandle> found(keys.size());
    const Moment invoked = clock_->tick();
    const std::size_t length = pool_->find_prefix(HashChain{hashes}, GroupId{0}, found);
    const Moment returned = clock_->tick();
    if (length < keys.size()) history_.misses.push_back({keys[length], number_, invoked, returned, true});
  }
  void evict_several(const Names& keys) {
    Blocks blocks;
    for (const std::uint32_t key : keys) {
      if (const auto found = pool_->find(make_key(key))) blocks.push_back(found->id);
    }
    const Moment invoked = clock_->tick();
    EXPECT_TRUE(pool_->evict_blocks(blocks));
    const Moment returned = clock_->tick();
    for (const BlockId block : blocks) note(Action::evict, block, 0, invoked, returned);
    note({CallKind::evict, true, 0, {}, 0, {}, invoked, returned}, blocks);
  }
  /// The key of some held block goes to one that never had a key.
  void move_keys() {
    const auto has_key = [](const Held& held) { return held.key != 0 && held.key != kSpent; };
    const auto source = std::find_if(held_.begin(), held_.end(), has_key);
    const auto target = std::find_if(held_.begin(), held_.end(), [](const Held& held) { return held.key == 0; });
    if (source == held_.end() || target == held_.end()) return;
    const Moment invoked = clock_->tick();
    const bool moved = pool_->move_block_hashes(source->block, target->block);
    const Moment returned = clock_->tick();
    const std::uint32_t key = source->key;
    target->key = moved ? key : kSpent;
    source->key = kSpent;
    note(moved ? Action::publish : Action::publish_in_vain, target->block, key, invoked, returned);
    if (moved) {
      note(Action::move_away, source->block, key, invoked, returned);
    } else {
      note(Action::unpublish, source->block, 0, invoked, returned);
    }
    note({CallKind::move, moved, 0, {}, 0, {}, invoked, returned}, {source->block, target->block});
  }
  void evict(std::uint32_t key) {
    const auto found = pool_->find(make_key(key));
    if (!found) return;
    const Moment invoked = clock_->tick();
    const bool had_content = pool_->unpublish(found->id);
    const Moment returned = clock_->tick();
    note(Action::unpublish, found->id, had_content ? 1 : 0, invoked, returned);
    note({CallKind::unpublish, had_content, 0, {}, 0, {}, invoked, returned}, {found->id});
  }
  /// The newest `count` of the held ones.
  void release(std::uint64_t fence, std::size_t count) {
    if (count == 0) return;
    Blocks blocks;
    for (; count > 0; --count) {
      blocks.push_back(held_.back().block);
      held_.pop_back();
    }
    const Moment invoked = clock_->tick();
    const bool good = fence > 0 ? pool_->free_blocks(blocks, fence) : pool_->free_blocks(blocks);
    const Moment returned = clock_->tick();
    EXPECT_TRUE(good) << "a release of held blocks was refused";
    for (const BlockId block : blocks) note(Action::release, block, 0, invoked, returned);
    // When the fence passes, others may still have the blocks in hand: they may be missing until the end.
    if (fence > 0) history_.withheld.push_back({static_cast<std::uint32_t>(blocks.size()), invoked, kNever});
    note({CallKind::release, true, 0, {}, fence, {}, invoked, returned}, blocks);
  }
  void advance(std::uint64_t fence) {
    const Moment invoked = clock_->tick();
    pool_->advance_fence(fence);
    note({CallKind::advance_fence, true, 0, {}, fence, {}, invoked, clock_->tick()}, {});
  }

  void note(Action action, BlockId block, std::uint32_t key, Moment invoked, stress::Moment returned) {
    history_.actions.push_back({action, block.value(), key, number_, invoked, returned});
  }
  void note(stress::WholeCall call, const Blocks& blocks) {
    for (const BlockId block : blocks) call.blocks.push_back(block.value());
    history_.calls.push_back(std::move(call));
  }

  Pool* pool_ = nullptr;
  Clock* clock_ = nullptr;
  std::uint32_t number_;
  std::mt19937_64 random_;
  std::vector<Held> held_;
  stress::History history_;
};

}  // namespace kvpool::testing
