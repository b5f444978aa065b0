// The steps of the check. Each runs in a process of its own, under a time-out of run.sh.
#pragma once

#include <string>

#include "tools/gpu_check/report.hpp"

namespace kvpool::gpu_check {

/// Every kernel on the device against the double reference. `few`: about 20 cases, for the sanitizers.
void check_correctness(Report& report, bool few);
/// Ceilings at the start and at the end, and the bars between them. Shapes that a peer shall be measured on are
/// rows named "peer ...".
void measure_bars(Report& report);
/// One launch each of decode (64 sequences), decode (one) and their merges, for a profiler.
void run_for_profiler();
/// Probe, watermarks, a neighbour that holds memory, a pool of most of the device. `program`: path of this program.
void check_memory(Report& report, const std::string& program);
/// The neighbour: holds `gigabytes` for `seconds`. Returns an exit status.
[[nodiscard]] int hold_memory(double gigabytes, double seconds);

}  // namespace kvpool::gpu_check
