// Whether a CUDA device can be used; the only question the rest of the library asks about it.
#pragma once

#include "kvpool/foundation/error.hpp"

namespace kvpool::kernels {

/// unsupported when CUDA is not built in; environment, with the driver's answer, when no driver or no device is there.
[[nodiscard]] Status cuda_available();

}  // namespace kvpool::kernels
