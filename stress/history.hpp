// What threads did to a pool and when: one record per call, split into what it did to each block.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace kvpool::stress {

enum class Action : std::uint8_t {
  claim,      ///< part of an allocation: the block had no reference, its content is gone
  pin,        ///< the block carried `key` and got a reference
  publish,    ///< a referenced block without content got `key`
  release,    ///< one reference less
  unpublish,  ///< content removed; `key` is 1 if there was some, else 0
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

struct History {
  std::vector<BlockAction> actions{};
  std::vector<Miss> misses{};
  std::vector<Allocation> allocations{};
  std::vector<Withheld> withheld{};

  void append(const History& other) {
    actions.insert(actions.end(), other.actions.begin(), other.actions.end());
    misses.insert(misses.end(), other.misses.begin(), other.misses.end());
    allocations.insert(allocations.end(), other.allocations.begin(), other.allocations.end());
    withheld.insert(withheld.end(), other.withheld.begin(), other.withheld.end());
  }
};

[[nodiscard]] std::string describe(const BlockAction& action);

}  // namespace kvpool::stress
