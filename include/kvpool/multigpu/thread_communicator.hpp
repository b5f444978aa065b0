// Ranks as threads of one process: the communicator of tests, sanitizers and `--ranks-as-threads`.
#pragma once

#include <memory>
#include <vector>

#include "kvpool/multigpu/communicator.hpp"

namespace kvpool {

/// `world_size` connected communicators, one per rank, in rank order; hand each to one thread.
/// Messages go through a mailbox per rank (a mutex and a condition variable). A rank whose communicator
/// is destroyed is simply silent from then on, like a process that died.
/// Throws std::invalid_argument when world_size < 1.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int world_size);

}  // namespace kvpool
