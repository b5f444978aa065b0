// Times the phases of a loop apart from each other.
#pragma once

#include <algorithm>
#include <chrono>

#include "tools/bench/interleave.hpp"

namespace kvpool::tools {

using PhaseTime = std::chrono::steady_clock;

/// What a phase without content takes: the reading of the clock itself. The smallest of many, measured once.
inline PhaseTime::duration clock_cost() {
  static const PhaseTime::duration kCost = [] {
    PhaseTime::duration least = PhaseTime::duration::max();
    for (int i = 0; i < 10'000; ++i) {
      const auto start = PhaseTime::now();
      least = std::min(least, PhaseTime::now() - start);
    }
    return least;
  }();
  return kCost;
}

/// Sums the time of one phase of a loop, less what the clock itself takes.
class PhaseClock {
 public:
  template <class Call>
  void operator()(Call&& call) {
    const auto start = PhaseTime::now();
    call();
    total_ += PhaseTime::now() - start - cost_;
  }
  [[nodiscard]] double ns_per(double count) const {
    return std::chrono::duration<double, std::nano>(total_).count() / count;
  }

 private:
  PhaseTime::duration cost_ = clock_cost();
  PhaseTime::duration total_{};
};

inline Sample ns_sample(double nanoseconds) {
  Sample sample;
  sample.ns_per_block = nanoseconds;
  sample.ops_per_second = nanoseconds > 0 ? 1e9 / nanoseconds : 0;
  return sample;
}

/// Calls `batch()` until `seconds` are over; answers how often.
template <class Batch>
double repeat_for(double seconds, Batch&& batch) {
  const auto end =
      PhaseTime::now() + std::chrono::duration_cast<PhaseTime::duration>(std::chrono::duration<double>(seconds));
  double count = 0;
  do {
    batch();
    ++count;
  } while (PhaseTime::now() < end);
  return count;
}

}  // namespace kvpool::tools
