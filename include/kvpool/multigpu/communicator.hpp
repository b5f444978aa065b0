// How ranks talk: a handful of collectives, each with a deadline, each naming the ranks that failed it.
//
// A communicator belongs to one rank and is used by one thread at a time; every rank calls the same
// operations in the same order. Nothing waits for ever: a call returns at the latest when its time-out
// has passed, counted from the moment this rank entered it, whatever the other ranks do.
//
// The first failure ends the communicator. The ranks that are alive tell each other what they saw and
// come to one verdict; that Error is what the failed call, every later call and failure() return, on
// every rank. Codes: deadline_exceeded (ranks did not answer), bad_input (a rank sent something that is
// not a valid message), rank_failed (a rank called abort); the message names all ranks at fault and the
// operation, `rank` is the first of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kvpool/foundation/error.hpp"

namespace kvpool {

using Bytes = std::vector<std::byte>;
using Timeout = std::chrono::milliseconds;

/// In which order a sum over ranks is rounded.
enum class SumOrder {
  /// One fixed binary tree over the ranks: the tree over n ranks adds the sum of the first m ranks and
  /// the sum of the others, m being the largest power of two below n. Same bits on every rank and in
  /// every run; and where each rank's contribution is itself such a sum over its share of a power of
  /// two of terms, the same bits for every number of ranks that divides them.
  fixed_tree,
  any,  ///< whatever is fastest
};

enum class MemoryKind { host, device };

/// The collectives of one rank. Not thread-safe. Every call blocks on messages of the other ranks, up
/// to its time-out. Sizes are checked: a rank whose contribution has another length than the operation
/// needs is at fault.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int world_size() const noexcept = 0;

  /// All-gather with one outcome: every rank that returns has either all contributions, in rank order,
  /// or the same error. Holds for any two faults during the call (a lost, late, garbled or repeated
  /// message, a dead rank). Four rounds of world_size messages. `step` names the call in messages.
  [[nodiscard]] virtual Result<std::vector<Bytes>> agree(std::string_view step, std::span<const std::byte> mine,
                                                         Timeout timeout) = 0;

  /// Contributions of all ranks in rank order; lengths may differ. One round. Unlike with agree(), some
  /// ranks may have succeeded when others fail; they learn of it in their next call.
  [[nodiscard]] virtual Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine, Timeout timeout) = 0;

  /// As all_gather, on `root` only; the other ranks get an empty vector and do not wait.
  [[nodiscard]] virtual Result<std::vector<Bytes>> gather(std::span<const std::byte> mine, int root,
                                                          Timeout timeout) = 0;

  /// Replaces `bytes` on every rank by the root's; any length. The root does not wait.
  [[nodiscard]] virtual Status broadcast(Bytes& bytes, int root, Timeout timeout) = 0;

  /// values[i] = minimum over all ranks, in 64-bit integers. Every rank passes the same number of values.
  [[nodiscard]] virtual Status all_reduce_min(std::span<std::int64_t> values, Timeout timeout) = 0;

  /// values[i] = sum over all ranks. `values` lies in sum_memory(). Refused as `unsupported`, on every
  /// rank alike and before anything is sent, when the order cannot be kept.
  [[nodiscard]] virtual Status all_reduce_sum(std::span<float> values, SumOrder order, Timeout timeout) = 0;

  /// The same for bfloat16 bit patterns: added in fp32 and rounded once, to nearest even.
  [[nodiscard]] virtual Status all_reduce_sum_bf16(std::span<std::uint16_t> values, SumOrder order,
                                                   Timeout timeout) = 0;

  /// Returns ok when every rank has entered it.
  [[nodiscard]] virtual Status barrier(Timeout timeout) = 0;

  /// Ends the communicator on all ranks: those waiting in a call, or entering one, get `rank_failed`
  /// naming this rank and `reason`. Returns at once; a second call does nothing.
  virtual void abort(const Error& reason) noexcept = 0;

  /// The verdict that ended this communicator, if it has ended.
  [[nodiscard]] virtual const std::optional<Error>& failure() const noexcept = 0;

  /// Where the buffers of the sums live.
  [[nodiscard]] virtual MemoryKind sum_memory() const noexcept { return MemoryKind::host; }
};

}  // namespace kvpool
