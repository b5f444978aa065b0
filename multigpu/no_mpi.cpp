// Stands in for the MPI adapter in a build without MPI.
#include "kvpool/multigpu/mpi_communicator.hpp"

namespace kvpool {

bool built_with_mpi() noexcept { return false; }

Result<std::unique_ptr<Communicator>> make_mpi_communicator(const std::optional<LauncherPlace>& place,
                                                            Timeout /*timeout*/) {
  if (auto status = check_launcher(place, 1); !status) return status.error();
  return Error{ErrorCode::unsupported, "this build has no MPI"};
}

}  // namespace kvpool
