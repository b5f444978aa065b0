#include "tools/launch/model/row_product_kernel.hpp"

namespace kvpool::launch::row_product_kernel {

void run_generic(const Panel& panel) noexcept { run_panel<4, 1>(panel); }

}  // namespace kvpool::launch::row_product_kernel
