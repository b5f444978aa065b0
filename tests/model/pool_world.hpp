// A tiny pool under the deterministic scheduler, with an independent book of who holds what and a recorded history.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
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
      : pool(options), holders_(options.num_blocks, 0), content_(options.num_blocks, 0) {
    history.skips_duplicates = skips_duplicates();
  }

  /// Blocks that one thread has, with the key they carry (0: none).
  struct Held {
    BlockId block;
    std::uint32_t key;
  };
  using Holding = std::vector<Held>;
  using Names = std::vector<std::uint32_t>;

  bool allocate(std::uint32_t count, Holding& holding) {
    Blocks blocks(count);
    Call call(*this);
    const bool granted = pool.get_new_blocks(blocks);
    call.returns();
    history.allocations.push_back({count, granted, thread(), call.invoked, call.returned});
    note_call(call, {stress::CallKind::allocate, granted, count, {}, 0}, granted ? blocks : Blocks{});
    if (!granted) return false;
    for (const BlockId block : blocks) {
      require(block != kNullBlock, "the null block was allocated");
      require(holders_[block.value()]++ == 0,
              [&] { return "block " + std::to_string(block.value()) + " was allocated to two"; });
      content_[block.value()] = 0;
      note(call, stress::Action::claim, block, 0);
      holding.push_back({block, 0});
    }
    return true;
  }

  bool pin(std::uint32_t name, Holding& holding) {
    const BlockKey key = model_key(name);
    Call call(*this);
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
    call.returns();
    note_call(call, {stress::CallKind::pin, pinned, 0, {name}, 0}, pinned ? Blocks{found->id} : Blocks{});
    if (pinned) {
      note_pin(call, found->id, name, holding);
    } else {
      history.misses.push_back({name, thread(), call.invoked, call.returned});
    }
    return pinned;
  }

  /// Pins the longest prefix of the names that can be had, a batch at a time: what a look-up of all that is left found.
  void pin_prefix(const Names& names, Holding& holding);

  /// A look-up that pins nothing. What it finds is a hint; what it misses, no block had all the time, capacity or not.
  void look_up(const Names& names);

  /// A reference more to each block by its number, whatever it is by now; all or none.
  bool touch(const std::vector<std::uint32_t>& numbers, Holding& holding) {
    const Blocks blocks(numbers.begin(), numbers.end());
    Call call(*this);
    const bool touched = pool.touch(blocks);
    call.returns();
    // A blank block is looked for in a stack, under a unit for each block above it.
    withhold(pool.num_blocks() - 1, call.invoked, call.returned, kNoFence);
    note_call(call, {stress::CallKind::touch, touched, 0, {}, 0}, blocks);
    if (!touched) return false;
    for (const BlockId block : blocks) {
      ++holders_[block.value()];
      note(call, stress::Action::touch, block, 0);
      holding.push_back({block, 0});
    }
    return true;
  }

  /// Without effect for a block that the caller knows to have a key.
  void publish(Held& held, std::uint32_t name);

  /// A key beside the one that the block has; if somebody has taken that one, the only key.
  void publish_further(const Held& held, std::uint32_t name);

  /// Each block of the holding, none of which has a key, gets the name at its place. Not where duplicates are skipped:
  /// the pool says how many were kept, and not which.
  void publish_chain(Holding& holding, const Names& names);

  /// Takes the content of a block that others may hold too and gives it a new key. Others may do the same, so that it
  /// may have another key by then.
  void rewrite(Held& held, std::uint32_t name);

  /// Takes the content of a block that the caller holds.
  void take_back(Held& held);

  /// Takes the content of whatever block carries the key, also one that others reference.
  void evict(std::uint32_t name);

  /// The same for several keys, whose blocks are found first and then named in one call.
  void evict_several(const Names& names);

  /// All keys of one held block to another one, which is new.
  void move_keys(Held& source, Held& target);

  void release(Holding& holding) { release_blocks(holding, nullptr); }
  void release(Holding& holding, std::uint64_t fence) { release_blocks(holding, &fence); }

  /// Steps up to `value` are done. Any call in progress may have their blocks in hand, on the way into the order, so
  /// the book counts them as withheld until no call is in progress.
  void advance_fence(std::uint64_t value) {
    Call call(*this);
    pool.advance_fence(value);
    call.returns();
    note_call(call, {stress::CallKind::advance_fence, true, 0, {}, value}, {});
    passed_ = std::max(passed_, value);
  }

  /// After every step: nothing may be out of range at any time.
  void check_step() {
    require(pool.num_free_blocks() < pool.num_blocks(), "more blocks are free than there are");
    for (Move* move : moves_) check_move(*move);
  }

  /// After all threads have returned and given everything back.
  void check_end() {
    if (skips_duplicates()) check_single_copies();
    if (uses_fences) advance_fence(1000);
    const Status status = pool.check_invariants();
    require(status.ok(), status.ok() ? "" : status.error().message);
    // What the fence ring had no slot for is found by the first allocation that needs it.
    require(pool.num_free_blocks() + pool.counts().fenced == pool.num_blocks() - 1, "blocks were lost");
    std::vector<BlockId> all(pool.num_blocks() - 1);
    require(pool.get_new_blocks(all), "not every free block can be reached");
    std::sort(all.begin(), all.end());
    require(std::adjacent_find(all.begin(), all.end()) == all.end(), "a block was handed out twice");
    history.dropped = pool.stats().ring_full;
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
  using Hashes = std::vector<BlockHash>;

  /// One call into the pool; when the last one in progress ends, passed fences hold nothing back any more.
  struct Call {
    explicit Call(World& of) : world(of) {
      Scheduler::call_boundary(true);
      ++world.calls_in_progress_;
      invoked = returned = ++world.clock_;
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    void returns() {
      Scheduler::call_boundary(false);
      returned = ++world.clock_;
    }
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
    stress::Moment invoked;
    stress::Moment returned;
  };

  static constexpr std::uint64_t kNoFence = ~std::uint64_t{0};

  /// A move in progress, watched after each step.
  struct Move {
    BlockId source;
    BlockId target;
    std::uint32_t key_of_source = 0;  ///< 0: has not been seen with one
    std::uint32_t key_of_target = 0;
    bool contested = false;  ///< other calls in progress may end the content
  };

  static Hashes hashes_of(const Names& names);
  static std::uint32_t name_of(const std::optional<BlockKey>& key) { return key ? key->hash.bytes[0] : 0; }
  [[nodiscard]] bool skips_duplicates() const { return pool.options().duplicates == DuplicatePolicy::skip; }
  bool take_content(BlockId block);
  void contest_moves();
  void check_move(Move& move) const;
  void check_single_copies();
  static std::uint32_t thread() { return static_cast<std::uint32_t>(Scheduler::current_thread()); }
  void note(const Call& call, stress::Action action, BlockId block, std::uint32_t key) {
    history.actions.push_back({action, block.value(), key, thread(), call.invoked, call.returned});
  }
  void note_pin(const Call& call, BlockId block, std::uint32_t name, Holding& holding) {
    // A holder may rewrite a shared block while this call returns; then only the history can tell.
    require(rewrites || content_[block.value()] == name,
            [&] { return "block " + std::to_string(block.value()) + " was pinned for content it has lost"; });
    ++holders_[block.value()];
    note(call, stress::Action::pin, block, name);
    holding.push_back({block, name});
  }
  void note_call(const Call& call, stress::WholeCall whole, const Blocks& blocks) {
    if (!records_calls) return;
    whole.invoked = call.invoked;
    whole.returned = call.returned;
    for (const BlockId block : blocks) whole.blocks.push_back(block.value());
    history.calls.push_back(std::move(whole));
  }
  void withhold(std::uint32_t count, stress::Moment from, stress::Moment until, std::uint64_t fence) {
    fences_.push_back(fence);
    history.withheld.push_back({count, from, until});
  }
  void release_blocks(Holding& holding, const std::uint64_t* fence) {
    if (holding.empty()) return;
    Blocks blocks;
    for (auto held = holding.rbegin(); held != holding.rend(); ++held) {
      require(rewrites || held->key == 0 || content_[held->block.value()] == held->key,
              "content changed while it was pinned");
      --holders_[held->block.value()];
      blocks.push_back(held->block);
    }
    Call call(*this);
    if (fence != nullptr) {
      withhold(static_cast<std::uint32_t>(blocks.size()), call.invoked, ~stress::Moment{0} - 1, *fence);
    }
    require(fence != nullptr ? pool.free_blocks(blocks, *fence) : pool.free_blocks(blocks), "a release was refused");
    call.returns();
    for (const BlockId block : blocks) note(call, stress::Action::release, block, 0);
    note_call(call, {stress::CallKind::release, true, 0, {}, fence != nullptr ? *fence : 0}, blocks);
    holding.clear();
  }

  stress::Moment clock_ = 0;
  std::vector<std::uint64_t> fences_;  // of each entry of history.withheld
  std::uint64_t passed_ = 0;           // highest fence that was advanced to
  int calls_in_progress_ = 0;
  int evictions_in_progress_ = 0;
  std::vector<Move*> moves_;           // in progress
  std::set<std::uint32_t> published_;  // primary keys
  std::vector<std::uint32_t> holders_;
  std::vector<std::uint32_t> content_;
};

}  // namespace kvpool::model

#include "tests/model/pool_world_content.hpp"
