#include "tools/launch/model/row_product_kernel.hpp"

namespace kvpool::launch::row_product_kernel {

void run_avx512(const Panel& panel) noexcept { run_panel<16, 8>(panel); }

}  // namespace kvpool::launch::row_product_kernel
