// Stands in for the CUDA probe in a build without CUDA.
#include "kvpool/multigpu/memory_probe.hpp"

namespace kvpool {

Result<std::unique_ptr<MemoryProbe>> make_cuda_memory_probe(int /*device*/) {
  return Error{ErrorCode::unsupported, "this build has no CUDA"};
}

}  // namespace kvpool
