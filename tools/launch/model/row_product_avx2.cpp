#include "tools/launch/model/row_product_kernel.hpp"

namespace kvpool::launch::row_product_kernel {

void run_avx2(const Panel& panel) noexcept { run_panel<8, 3>(panel); }

}  // namespace kvpool::launch::row_product_kernel
