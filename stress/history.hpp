// What threads did to a pool and when: one record per call, split into what it did to each block.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kvpool::stress {

enum class Action : std::uint8_t {
  claim,            ///< part of an allocation: the block had no reference, its content is gone
  pin,              ///< the block carried `key` and got a reference
  touch,            ///< the block got a reference, whatever it carried
  publish,          ///< a referenced block without content got `key`
  release,          ///< one reference less
  unpublish,        ///< content removed; `key` is 1 if there was some, else 0
  publish_further,  ///< a referenced block got `key` beside its own, or as the only one if it had none
  evict,            ///< content removed, if there was some
  move_away,        ///< content under `key` removed
  publish_in_vain,  ///< a referenced block got `key` and lost it again within the call, or never got it
  take_back,        ///< the end of a publish_in_vain, entered by the checker itself
};

/// Moments are numbers from one counter that every thread draws from: a call happened between its two.
using Moment = std::uint64_t;

struct BlockAction {
  Action action = Action::claim;
  std::uint32_t block = 0;
  std::uint32_t key = 0;
  std::uint32_t thread = 0;
  Moment invoked = 0;
  Moment returned = 0;
};

/// A look-up that found nothing, or found a block and could not pin it.
struct Miss {
  std::uint32_t key = 0;
  std::uint32_t thread = 0;
  Moment invoked = 0;
  Moment returned = 0;
  bool pins_nothing = false;  ///< no lack of capacity explains it
};

/// An allocation of `count` blocks, granted or refused.
struct Allocation {
  std::uint32_t count = 0;
  bool granted = false;
  std::uint32_t thread = 0;
  Moment invoked = 0;
  Moment returned = 0;
};

/// Blocks that are unavailable without a reference: freed under a fence that has not passed yet.
struct Withheld {
  std::uint32_t count = 0;
  Moment from = 0;
  Moment until = 0;
};

/// Consecutive publications of `History::actions` that one call made, in this order.
struct Chain {
  std::size_t first = 0;
  std::size_t length = 0;
};

enum class CallKind : std::uint8_t {
  allocate,    ///< `done`: `blocks` were handed out; else refused, and `count` says how many were asked for
  pin,         ///< `done`: `blocks[0]` answered for `keys[0]` and got a reference; else a miss
  pin_prefix,  ///< the same for each of `blocks` and its key, one after the other; not `done`: a miss of the next key
  touch,       ///< `done`: one reference more for each of `blocks`
  publish,     ///< `done`: each of `blocks`, referenced and without content, answers for its key, one after the other
  release,     ///< one reference less for each of `blocks`, which wait for `fence` (0: for none)
  unpublish,   ///< `done`: `blocks[0]` had content, which is gone
  advance_fence,  ///< steps up to `fence` are over
  evict,          ///< none of `blocks` has content any more
  move,  ///< `done`: the content of `blocks[0]` is now that of `blocks[1]`, which had none; else it could not be
};

/// The same calls undivided, for the question whether a history is linearizable with every call at one moment.
struct WholeCall {
  CallKind kind = CallKind::allocate;
  bool done = false;
  std::uint32_t count = 0;
  std::vector<std::uint32_t> keys{};
  std::uint64_t fence = 0;
  std::vector<std::uint32_t> blocks{};
  Moment invoked = 0;
  Moment returned = 0;
};

struct History {
  std::vector<BlockAction> actions{};
  std::vector<Miss> misses{};
  std::vector<Allocation> allocations{};
  std::vector<Withheld> withheld{};
  std::vector<WholeCall> calls{};
  std::vector<Chain> chains{};
  bool skips_duplicates = false;  ///< a publish of a key that another block has is refused
  /// Blocks that may have lost their content by themselves, see PoolStats::ring_full.
  std::uint64_t dropped = 0;

  void append(const History& other) {
    for (const Chain& chain : other.chains) chains.push_back({actions.size() + chain.first, chain.length});
    actions.insert(actions.end(), other.actions.begin(), other.actions.end());
    misses.insert(misses.end(), other.misses.begin(), other.misses.end());
    allocations.insert(allocations.end(), other.allocations.begin(), other.allocations.end());
    withheld.insert(withheld.end(), other.withheld.begin(), other.withheld.end());
    calls.insert(calls.end(), other.calls.begin(), other.calls.end());
    skips_duplicates |= other.skips_duplicates;
    dropped += other.dropped;
  }
};

[[nodiscard]] std::string describe(const BlockAction& action);

}  // namespace kvpool::stress
