// Decides whether a history is one that the pool's promises allow.
//
// "Allowed" means, for every block taken alone: there is an order of the calls, each placed somewhere between its
// invocation and its return, in which every call does what it says it did (linearizability, which is local, so that
// blocks can be checked one by one). Refusals have a weaker promise and are checked as intervals:
//   no capacity: at some moment of the call, blocks held, plus those named by other calls in progress, plus the call's
//                own count exceed the number of usable blocks (blocks behind a fence count as held, and so does a
//                shared block that a pin in progress holds until it has seen that the key is gone);
//   miss:        no single block carried the key during the whole call, or the call was to pin it and there was no free
//                capacity at some moment of it.
// A chain is published in its order: what stands before an element that somebody has pinned is published. A publication
// in vain (a copy that was not to stay, a move that lost its source) may be seen until its call returns, not later.
// Where the pool has dropped content by itself, a miss is always justified, and so is an unpublish that finds nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stress/history.hpp"

namespace kvpool::stress {

struct HistoryVerdict {
  bool allowed = true;
  std::string reason;                 ///< first violation, with the shortest piece of history that shows it
  std::uint64_t actions = 0;          ///< checked one by one
  std::uint64_t refusals = 0;         ///< misses and refused allocations
  std::uint64_t longest_segment = 0;  ///< calls that overlapped, directly or through others
};

/// `usable_blocks` = blocks in the pool without the null block. Every block starts free and without content.
/// Time: exponential in the number of calls that overlap on one block, linear in everything else.
[[nodiscard]] HistoryVerdict check_history(const History& history, std::uint32_t usable_blocks);

}  // namespace kvpool::stress
