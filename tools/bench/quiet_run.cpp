#include "tools/bench/quiet_run.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "tools/cli/interrupt.hpp"

namespace kvpool::tools {
namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

CpuMeter::CpuMeter() : start_(now()) {}

std::optional<CpuMeter::Times> CpuMeter::now() {
  std::ifstream file("/proc/stat");
  std::string label;
  // user nice system idle iowait irq softirq steal
  std::uint64_t ticks[8] = {};
  file >> label;
  for (std::uint64_t& value : ticks) {
    file >> value;
  }
  const auto per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  rusage usage{};
  if (!file || label != "cpu" || per_second <= 0 || getrusage(RUSAGE_SELF, &usage) != 0) {
    return std::nullopt;
  }
  const std::uint64_t idle = ticks[3] + ticks[4];
  const std::uint64_t busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7];
  return Times{static_cast<double>(busy) / per_second, static_cast<double>(busy + idle) / per_second,
               seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime)};
}

std::optional<double> CpuMeter::foreign_share() const {
  const auto end = now();
  if (!start_ || !end || end->total <= start_->total) {
    return std::nullopt;
  }
  const double foreign = (end->busy - start_->busy) - (end->own - start_->own);
  return std::max(0.0, foreign / (end->total - start_->total));
}

bool run_quietly(const std::function<void()>& run) {
  for (int i = 0; i < kMaxTries; ++i) {
    const CpuMeter meter;
    run();
    const auto foreign = meter.foreign_share();
    if (foreign && *foreign <= kMaxForeignShare) {
      return true;
    }
    if (!foreign || interrupt_requested()) {
      return false;  // trying again would not tell more
    }
  }
  return false;
}

}  // namespace kvpool::tools
