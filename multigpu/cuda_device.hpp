// Which CUDA device a rank uses.
#pragma once

#include <string>

#include "kvpool/foundation/error.hpp"

namespace kvpool::multigpu {

struct CudaDevice {
  int index = 0;
  std::string name;
  std::string uuid;
};

/// `environment` when there is no driver, no device at all, or not this one. Never waits.
[[nodiscard]] Result<CudaDevice> open_cuda_device(int device);

}  // namespace kvpool::multigpu
