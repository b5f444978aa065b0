// Decides whether a history is strictly linearizable: some order of the undivided calls, each at one moment between its
// invocation and its return, is a run of the sequential specification, refusals and misses included.
//
// The pool promises less than that (history_checker.hpp): a refusal or a miss may be justified by calls in progress,
// and a call on many blocks takes effect block by block. How often that shows is a figure, not a failure.
#pragma once

#include <cstdint>

#include "stress/history.hpp"

namespace kvpool::stress {

enum class Strictness : std::uint8_t {
  linearizable,
  not_linearizable,
  undecided,  ///< more than 64 calls overlap, directly or through others
};

/// The specification, over blocks that start free and without content:
///   allocate   takes blocks without references or fence, which lose their content; refused exactly if too few are free
///   pin        adds a reference to a block with the key; a miss exactly if no block has it
///   touch      adds a reference to each block
///   publish    gives a referenced block without content the key; where duplicates are skipped, only if no block has it
///   release    takes a reference from each block and raises its fence; the last one makes it free, or waiting for its
///              fence, with its content
///   unpublish  takes the content away and says whether there was some
///   evict      takes the content of each block away
///   move       gives the content of one block to another, referenced and without content; refused if it cannot
/// `usable_blocks` as for check_history, block numbers 1 to usable_blocks.
/// Time: exponential in the number of calls that overlap, linear in everything else.
[[nodiscard]] Strictness check_strictly(const History& history, std::uint32_t usable_blocks);

}  // namespace kvpool::stress
