#include "tools/launch/rank/compute_device.hpp"

namespace kvpool::launch {

Result<std::shared_ptr<ComputeDevice>> open_cuda_device(int /*device*/) {
  return {ErrorCode::unsupported, "kvpool was built without CUDA"};
}

}  // namespace kvpool::launch
