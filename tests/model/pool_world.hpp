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
      std::uint32_t units = pool.try_reserve(1) ? 1 : 0;
      pinned = pool.pin(*found, key, units);
      pool.give_back(units);
      if (pinned) break;
      const auto again = pool.find(key);
      if (again == found) break;  // still there and not to be had: no capacity
      found = again;
    }
    const stress::Moment returned = ++clock_;
    if (!pinned) {
      history.misses.push_back({name, thread(), invoked, returned});
      return false;
    }
    const std::uint32_t block = found->id.value();
    require(content_[block] == name, "block " + std::to_string(block) + " was pinned for content it has lost");
    ++holders_[block];
    note(stress::Action::pin, found->id, name, invoked, returned);
    holding.push_back({found->id, name});
    return true;
  }

  void publish(Held& held, std::uint32_t name) {
    if (held.key != 0) return;
    content_[held.block.value()] = name;
    const Call call(*this);
    const stress::Moment invoked = ++clock_;
    const bool published = pool.publish(held.block, model_key(name), 4);
    const stress::Moment returned = ++clock_;
    require(published, "an owner's publish was refused");
    held.key = name;
    note(stress::Action::publish, held.block, name, invoked, returned);
  }

  void release(Holding& holding) { release_blocks(holding, nullptr); }
  void release(Holding& holding, std::uint64_t fence) { release_blocks(holding, &fence); }

  /// Steps up to `value` are done. Any call in progress may have their blocks in hand, on the way into the order, so
  /// the book counts them as withheld until no call is in progress.
  void advance_fence(std::uint64_t value) {
    const Call call(*this);
    pool.advance_fence(value);
    passed_ = std::max(passed_, value);
  }

  /// Takes the content of whatever block carries the key, also one that others reference.
  void evict(std::uint32_t name) {
    const Call call(*this);
    const auto found = pool.find(model_key(name));
    if (!found) return;
    const stress::Moment invoked = ++clock_;
    const bool had_content = pool.unpublish(found->id);
    const stress::Moment returned = ++clock_;
    note(stress::Action::unpublish, found->id, had_content ? 1 : 0, invoked, returned);
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
    require(pool.num_free_blocks() == pool.num_blocks() - 1, "blocks were lost");
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

 private:
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

  static std::uint32_t thread() { return static_cast<std::uint32_t>(Scheduler::current_thread()); }
  void note(stress::Action action, BlockId block, std::uint32_t key, stress::Moment invoked, stress::Moment returned) {
    history.actions.push_back({action, block.value(), key, thread(), invoked, returned});
  }
  void release_blocks(Holding& holding, const std::uint64_t* fence) {
    if (holding.empty()) return;
    std::vector<BlockId> blocks;
    for (auto held = holding.rbegin(); held != holding.rend(); ++held) {
      require(held->key == 0 || content_[held->block.value()] == held->key, "content changed while it was pinned");
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
