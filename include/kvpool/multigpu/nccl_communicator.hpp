// Ranks with a GPU each: sums and gathers on devices through NCCL, everything else beside it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "kvpool/multigpu/communicator.hpp"

namespace kvpool {

[[nodiscard]] bool built_with_nccl() noexcept;

/// Where a rank's GPU is: two ranks must not name the same.
struct DevicePlace {
  std::string host;
  std::string uuid;
};

/// Refuses ranks that share a GPU, naming them: NCCL would refuse too, but only after its own set-up, and
/// newer versions may hang instead. `invalid_config`, `rank` is the second of the first pair.
[[nodiscard]] Status check_devices_differ(std::span<const DevicePlace> places);

/// Sets up NCCL for the ranks of `control` (threads or MPI), which must outlive the result and carries the unique
/// id, agreements, and the search for the rank at fault. Checks before NCCL is called: a driver and the device on
/// every rank, NCCL 2.18 or newer at run time, no GPU twice. All ranks return the same error.
///
/// all_gather, all_reduce_min and the sums run on the device; sums take device memory and SumOrder::any
/// only (`unsupported` otherwise, since NCCL chooses the order). After a time-out or an asynchronous error
/// NCCL's communicator is aborted on every rank and the ranks look for the culprit through `control`.
/// Errors: `unsupported` (build without NCCL), `environment`, `invalid_config`, those of Communicator.
[[nodiscard]] Result<std::unique_ptr<Communicator>> make_nccl_communicator(Communicator& control, int device,
                                                                           Timeout timeout);

}  // namespace kvpool
