// Ranks as processes that know an address and their number: no MPI needed, as under Slurm or a shell script.
#pragma once

#include <memory>

#include "kvpool/multigpu/communicator.hpp"
#include "kvpool/multigpu/rendezvous.hpp"

namespace kvpool {

/// Ranks meet at the store of `place` (exchange_through_tcp) and then talk directly, each pair over a connection of its
/// own, in host memory. Blocks until every rank is connected to every other, `timeout` at most.
///
/// Ranks listen at the address by which they reach `place`, at ports of the system's choice. Only who knows the number
/// that rank 0 drew for this start is let in; nothing is encrypted, so this is for a cluster's own network.
/// Errors: those of exchange_through_tcp; deadline_exceeded naming the ranks that did not connect.
[[nodiscard]] Result<std::unique_ptr<Communicator>> make_tcp_communicator(const TcpPlace& place, int rank,
                                                                          int world_size, Timeout timeout);

}  // namespace kvpool
