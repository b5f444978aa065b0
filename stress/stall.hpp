// Suspends threads by real signals, at whatever instruction they happen to be, and measures what the others do
// meanwhile.
#pragma once

#include <pthread.h>

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "stress/worker.hpp"

namespace kvpool::stress {

struct StallReport {
  std::uint64_t stalls = 0;
  std::uint64_t inside_pool = 0;                    ///< the suspended thread was in the middle of a pool call
  std::uint64_t frozen = 0;                         ///< stalls during which the others completed nothing at all
  double slowest_rate_ratio = 0.0;                  ///< slowest stall's rate of the others / median rate without stall
  double median_rate_ratio = 0.0;                   ///< the same for the median stall
  std::array<std::uint64_t, kOperations> fewest{};  ///< operations of the others in the poorest stall, by kind
  std::array<bool, kOperations> used{};             ///< kinds that the workload has at all
};

/// While it lives, the calling thread is not suspended but at its end: for locks of the program's own. Not nested.
class StallsPutOff {
 public:
  StallsPutOff();
  ~StallsPutOff();
  StallsPutOff(const StallsPutOff&) = delete;
  StallsPutOff& operator=(const StallsPutOff&) = delete;
};

class Staller {
 public:
  Staller(std::vector<pthread_t> threads, std::vector<Progress>& progress, std::uint64_t seed);

  /// Suspends random threads for 100-300 ms each, with pauses in between, until `over` says so.
  StallReport run(const std::function<bool()>& over);

 private:
  using Sample = std::array<std::uint64_t, kOperations>;
  [[nodiscard]] Sample sample(std::size_t without) const;

  std::vector<pthread_t> threads_;
  std::vector<Progress>* progress_;
  std::mt19937_64 random_;
};

[[nodiscard]] std::string to_text(const StallReport& report);

}  // namespace kvpool::stress
