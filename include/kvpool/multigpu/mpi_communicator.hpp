// Ranks as processes started by an MPI launcher, messages in host memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kvpool/multigpu/communicator.hpp"

namespace kvpool {

/// Whether this build contains the MPI adapter.
[[nodiscard]] bool built_with_mpi() noexcept;

/// Answers the value of a launcher's variable, nothing when it is unset.
using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view name)>;

/// What a launcher says about this process. Known: OpenMPI, MPICH and other PMI launchers, Slurm.
struct LauncherPlace {
  std::string launcher;  ///< "OpenMPI", "PMI", "Slurm"
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank;  ///< rank among those on this host: the device to bind
  std::optional<int> local_size;  ///< ranks on this host
};

/// Reads the launcher's variables through `lookup`; empty when no launcher started this process.
/// A value that is not a number in range is an error naming the variable. Of Slurm only a job step's
/// variables count (SLURM_STEP_NUM_TASKS), so a batch script is a single process.
[[nodiscard]] Result<std::optional<LauncherPlace>> read_launcher_place(const EnvironmentLookup& lookup);

/// Refuses to start as "rank 0 of 1" when the launcher started several ranks and the communicator in
/// use sees `world_size` of them: each process would silently work alone.
[[nodiscard]] Status check_launcher(const std::optional<LauncherPlace>& place, int world_size);

/// Initialises MPI if nobody has and joins all ranks of the launcher. Errors: `unsupported` when this
/// build has no MPI, `environment` when MPI fails or disagrees with `place`, `deadline_exceeded` when
/// not all ranks come. MPI itself is called by one thread at a time, the one that uses the communicator.
///
/// The destructor finalises MPI if this call initialised it, the communicator is sound and all ranks
/// come to their destructors within `timeout`. Otherwise it does not, because finalising waits for the
/// dead: the program reports and then leaves through exit_after_rank_failure().
[[nodiscard]] Result<std::unique_ptr<Communicator>> make_mpi_communicator(const std::optional<LauncherPlace>& place,
                                                                          Timeout timeout);

/// Exit status of a program whose peers failed.
inline constexpr int kExitStatusEnvironment = 3;

/// Last resort after a failure: flushes the C streams and ends the process with status 3, without
/// destructors, exit handlers or MPI_Finalize, any of which could wait for a dead rank.
[[noreturn]] void exit_after_rank_failure() noexcept;

}  // namespace kvpool
