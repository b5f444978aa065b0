// Stands in for the NCCL adapter in a build without NCCL.
#include "kvpool/multigpu/nccl_communicator.hpp"

namespace kvpool {

bool built_with_nccl() noexcept { return false; }

Result<std::unique_ptr<Communicator>> make_nccl_communicator(Communicator& /*control*/, int /*device*/,
                                                             Timeout /*timeout*/) {
  return Error{ErrorCode::unsupported, "this build has no NCCL"};
}

}  // namespace kvpool
