// Parts of the correctness step.
#pragma once

#include "tools/gpu_check/report.hpp"

namespace kvpool::gpu_check {

void check_attention(Report& report, bool few);
void check_cache_ops(Report& report);
/// Refusals, the caller's device, replay of captured graphs.
void check_launches(Report& report);

}  // namespace kvpool::gpu_check
