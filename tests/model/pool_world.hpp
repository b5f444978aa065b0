// A tiny pool under the deterministic scheduler, with an independent book of who holds what and a recorded history.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pool/basic_block_pool.hpp"
#include "pool/pool_content.hpp"
#include "pool/pool_fences.hpp"
#include "pool/pool_inspection.hpp"
#include "pool/pool_references.hpp"
#include "stress/history_checker.hpp"
#include "tests/model/atomic.hpp"
#include "tests/model/scheduler.hpp"

namespace kvpool::model {

struct ByThread {
  [[nodiscard]] static std::uint32_t hint() noexcept { return static_cast<std::uint32_t>(Scheduler::current_thread()); }
};
using ModelPool = BasicBlockPool<Atomic, ByThread>;

inline BlockKey model_key(std::uint32_t name) {
  BlockKey key;
  key.hash.size = 16;
  key.hash.bytes[0] = static_cast<std::uint8_t>(name);
  key.hash.bytes[9] = 1;
  return key;
}

class World {
 public:
  explicit World(const BlockPoolOptions& options)
      : pool(options), holders_(options.num_blocks, 0), content_(options.num_blocks, 0) {}

  /// Blocks that one thread has, with the key they carry (0: none).
  struct Held {
    BlockId block;
    std::uint32_t key;
  };
  using Holding = std::vector<Held>;

  bool allocate(std::uint32_t count, Holding& holding) {
    std::vector<BlockId> blocks(count);
    const Call call(*this);
    const stress::Moment invoked = ++clock_;
    const bool granted = pool.get_new_blocks(blocks);
    const stress::Moment returned = ++clock_;
    history.allocations.push_back({count, granted, thread(), invoked, returned});
    if (records_calls)
      note_call(stress::CallKind::allocate, granted, count, 0, 0, granted ? blocks : Blocks{}, invoked);
    if (!granted) return false;
    for (const BlockId block : blocks) {
      require(block != kNullBlock, "the null block was allocated");
      require(holders_[block.value()]++ == 0, "block " + std::to_string(block.value()) + " was allocated to two");
      content_[block.value()] = 0;
      note(stress::Action::claim, block, 0, invoked, returned);
      holding.push_back({block, 0});
    }
    return true;
  }

  bool pin(std::uint32_t name, Holding& holding) {
    const Call call(*this);
    const BlockKey key = model_key(name);
    const stress::Moment invoked = ++clock_;
    auto found = pool.find(key);
    bool pinned = false;
    while (found && !pinned) {  // a handle that was recycled in between says nothing about other copies: look again
      const bool is_free = pool.ref_count(found->id) == 0;
      std::uint32_t units = is_free && pool.try_reserve(1) ? 1 : 0;
      const bool covered = units == 1 || !is_free;
      pinned = pool.pin(*found, key, units);
      pool.give_back(units);
      if (pinned) break;
      const auto again = pool.find(key);
      if (again == found && !covered) break;  // still there and not to be had: no capacity
      found = again;
    }
    const stress::Moment returned = ++clock_;
    if (records_calls) {
      note_call(stress::CallKind::pin, pinned, 0, name, 0, pinned ? Blocks{found->id} : Blocks{}, invoked);
    }
    if (!pinned) {
      history.misses.push_back({name, thread(), invoked, returned});
      return false;
    }
    const std::uint32_t block = found->id.value();
    // A holder may rewrite a shared block while this call returns; then only the history can tell.
    require(rewrites || content_[block] == name,
            "block " + std::to_string(block) + " was pinned for content it has lost");
    ++holders_[block];
    note(stress::Action::pin, found->id, name, invoked, returned);
    holding.push_back({found->id, name});
    return true;
  }

  /// A reference more to a block by its number, whatever it is by now.
  bool touch(std::uint32_t number, Holding& holding) {
    const BlockId block{number};
    const Call call(*this);
    const stress::Moment invoked = ++clock_;
    const bool touched = pool.touch({&block, 1});
    const stress::Moment returned = ++clock_;
    // A blank block is looked for in a stack, under a unit for each block above it.
    fences_.push_back(kNoFence);
    history.withheld.push_back({pool.num_blocks() - 1, invoked, returned});
    if (records_calls) note_call(stress::CallKind::touch, touched, 0, 0, 0, {block}, invoked);
    if (!touched) return false;
    ++holders_[number];
    note(stress::Action::touch, block, 0, invoked, returned);
    holding.push_back({block, 0});
    return true;
  }

  /// A further key. Not part of the history: nobody looks it up; the index is checked at the end.
  void publish_further(const Held& held, std::uint32_t name) {
    const Call call(*this);
    pool.publish(held.block, model_key(name), 4);
  }

  /// Takes the content of a block that others may hold too and gives it a new key, if nobody else does so.
  void rewrite(Held& held, std::uint32_t name) {
    take_content(held.block);
    held.key = 0;
    const Call call(*this);
    const stress::Moment invoked = ++clock_;
    const bool published = pool.publish(held.block, model_key(name), 4);
    const stress::Moment returned = ++clock_;
    if (!published) return;
    content_[held.block.value()] = name;
    note(stress::Action::publish, held.block, name, invoked, returned);
    if (records_calls) note_call(stress::CallKind::publish, true, 0, name, 0, {held.block}, invoked);
  }

  void publish(Held& held, std::uint32_t name) {
    if (held.key != 0) return;
    content_[held.block.value()] = name;
    const Call call(*this);
    const stress::Moment invoked = ++clock_;
    const bool published = pool.publish(held.block, model_key(name), 4);
    const stress::Moment returned = ++clock_;
    require(published, "an owner's publish was refused");
    if (records_calls) note_call(stress::CallKind::publish, true, 0, name, 0, {held.block}, invoked);
    held.key = name;
    note(stress::Action::publish, held.block, name, invoked, returned);
  }

  void release(Holding& holding) { release_blocks(holding, nullptr); }
  void release(Holding& holding, std::uint64_t fence) { release_blocks(holding, &fence); }

  /// Steps up to `value` are done. Any call in progress may have their blocks in hand, on the way into the order, so
  /// the book counts them as withheld until no call is in progress.
  void advance_fence(std::uint64_t value) {
    const Call call(*this);
    const stress::Moment invoked = ++clock_;
    pool.advance_fence(value);
    ++clock_;
    if (records_calls) note_call(stress::CallKind::advance_fence, true, 0, 0, value, {}, invoked);
    passed_ = std::max(passed_, value);
  }

  /// Takes the content of whatever block carries the key, also one that others reference.
  void evict(std::uint32_t name) {
    const Call call(*this);
    const auto found = pool.find(model_key(name));
    if (found) take_content(found->id);
  }

  /// After every step: nothing may be out of range at any time.
  void check_step() const {
    require(pool.num_free_blocks() < pool.num_blocks(), "more blocks are free than there are");
  }

  /// After all threads have returned and given everything back.
  void check_end() {
    if (uses_fences) advance_fence(1000);
    const Status status = pool.check_invariants();
    require(status.ok(), status.ok() ? "" : status.error().message);
    // What the fence ring had no slot for is found by the first allocation that needs it.
    require(pool.num_free_blocks() + pool.counts().fenced == pool.num_blocks() - 1, "blocks were lost");
    std::vector<BlockId> all(pool.num_blocks() - 1);
    require(pool.get_new_blocks(all), "not every free block can be reached");
    std::sort(all.begin(), all.end());
    require(std::adjacent_find(all.begin(), all.end()) == all.end(), "a block was handed out twice");
    const stress::HistoryVerdict verdict = stress::check_history(history, pool.num_blocks() - 1);
    require(verdict.allowed, verdict.reason);
  }

  ModelPool pool;
  stress::History history;
  bool uses_fences = false;
  bool rewrites = false;       ///< some script rewrites shared blocks
  bool records_calls = false;  ///< undivided calls too, for the strict checker

 private:
  using Blocks = std::vector<BlockId>;

  /// One call into the pool; when the last one in progress ends, passed fences hold nothing back any more.
  struct Call {
    explicit Call(World& of) : world(of) { ++world.calls_in_progress_; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
      if (--world.calls_in_progress_ > 0) return;
      const stress::Moment now = ++world.clock_;
      for (std::size_t i = 0; i < world.fences_.size(); ++i) {
        if (world.fences_[i] <= world.passed_) {
          world.history.withheld[i].until = std::min(world.history.withheld[i].until, now);
        }
      }
    }
    World& world;
  };

  static constexpr std::uint64_t kNoFence = ~std::uint64_t{0};

  void take_content(BlockId block) {
    const Call call(*this);
    const stress::Moment invoked = ++clock_;
    const bool had_content = pool.unpublish(block);
    const stress::Moment returned = ++clock_;
    note(stress::Action::unpublish, block, had_content ? 1 : 0, invoked, returned);
    if (records_calls) note_call(stress::CallKind::unpublish, had_content, 0, 0, 0, {block}, invoked);
  }
  static std::uint32_t thread() { return static_cast<std::uint32_t>(Scheduler::current_thread()); }
  void note(stress::Action action, BlockId block, std::uint32_t key, stress::Moment invoked, stress::Moment returned) {
    history.actions.push_back({action, block.value(), key, thread(), invoked, returned});
  }
  /// The call has just returned.
  void note_call(stress::CallKind kind, bool done, std::uint32_t count, std::uint32_t key, std::uint64_t fence,
                 const std::vector<BlockId>& blocks, stress::Moment invoked) {
    stress::WholeCall call{kind, done, count, key, fence, {}, invoked, clock_};
    for (const BlockId block : blocks) call.blocks.push_back(block.value());
    history.calls.push_back(std::move(call));
  }
  void release_blocks(Holding& holding, const std::uint64_t* fence) {
    if (holding.empty()) return;
    std::vector<BlockId> blocks;
    for (auto held = holding.rbegin(); held != holding.rend(); ++held) {
      require(rewrites || held->key == 0 || content_[held->block.value()] == held->key,
              "content changed while it was pinned");
      --holders_[held->block.value()];
      blocks.push_back(held->block);
    }
    const Call call(*this);
    const stress::Moment invoked = ++clock_;
    if (fence != nullptr) {
      fences_.push_back(*fence);
      history.withheld.push_back({static_cast<std::uint32_t>(blocks.size()), invoked, ~stress::Moment{0} - 1});
    }
    require(fence != nullptr ? pool.free_blocks(blocks, *fence) : pool.free_blocks(blocks), "a release was refused");
    const stress::Moment returned = ++clock_;
    for (const BlockId block : blocks) note(stress::Action::release, block, 0, invoked, returned);
    if (records_calls) {
      note_call(stress::CallKind::release, true, 0, 0, fence != nullptr ? *fence : 0, blocks, invoked);
    }
    holding.clear();
  }

  stress::Moment clock_ = 0;
  std::vector<std::uint64_t> fences_;  // of each entry of history.withheld
  std::uint64_t passed_ = 0;           // highest fence that was advanced to
  int calls_in_progress_ = 0;
  std::vector<std::uint32_t> holders_;
  std::vector<std::uint32_t> content_;
};

}  // namespace kvpool::model
