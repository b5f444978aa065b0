// How ranks that have nothing yet but a place in common find each other: a file, or an address. Both carry a few
// bytes of rank 0, such as NCCL's unique id, to all others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvpool/multigpu/communicator.hpp"

namespace kvpool {

/// Hands rank 0's bytes to all ranks through a file on shared storage: rank 0 writes and renames, the others poll. The
/// path must be new for every start. `deadline_exceeded` when nothing comes.
[[nodiscard]] Status share_through_file(const std::string& path, Bytes& bytes, int rank, Timeout timeout);

/// The address at which rank 0 listens while the others come.
struct TcpPlace {
  std::string host;         ///< name or number of rank 0's host, as seen by all ranks
  std::uint16_t port = 0;   ///< not 0
  std::string job = "job";  ///< the same on all ranks; keeps apart jobs that meet at one port by mistake. No secret.
};

/// Every rank's bytes (64 KiB at most), in rank order, through a store that lives in rank 0 for the time of the call.
/// Ranks may come in any order. Blocks until all have come, `timeout` at most, counted from this rank's call.
///
/// The outcome is common to all ranks that reached the store: rank 0 lets nobody go before everybody has come, and
/// tells those who wait why it gives up. A connection that is no rank of this job (another program, another job, noise,
/// silence) is refused, counted and otherwise ignored; at most a few dozen are held at a time. Nothing is encrypted.
///
/// Errors: deadline_exceeded (naming the ranks that did not come; elsewhere: no store at the address), environment
/// (rank 0 cannot listen there: at once, with the system's reason; the host has no address), bad_input (at the address
/// is something that is no store, or one of another job), invalid_config (two processes claim one rank, another world
/// size; `rank` is the offender).
[[nodiscard]] Result<std::vector<Bytes>> exchange_through_tcp(const TcpPlace& place, const Bytes& mine, int rank,
                                                              int world_size, Timeout timeout);

/// Hands rank 0's bytes to all ranks: exchange_through_tcp of which only rank 0's part is used.
[[nodiscard]] Status share_through_tcp(const TcpPlace& place, Bytes& bytes, int rank, int world_size, Timeout timeout);

}  // namespace kvpool
