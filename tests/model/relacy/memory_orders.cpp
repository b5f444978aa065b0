// Memory orders of the shipped parts under Relacy, two or three threads each. Every kernel runs as shipped, where
// nothing may be found, and with releases, acquires or both planted as relaxed, where something must be; one runs as
// shipped only.
#include <cstdio>
#include <string>

#include "tests/model/relacy/content_kernels.hpp"
#include "tests/model/relacy/event_kernels.hpp"
#include "tests/model/relacy/hand_over_kernels.hpp"
#include "tests/model/relacy/order_kernels.hpp"
#include "tests/model/relacy/record_kernels.hpp"

namespace kvpool::model {
namespace {

struct Verdict {
  bool clean;
  std::string what;
};

template <class Kernel>
Verdict check(unsigned long iterations, Weakened orders) {
  weakened = orders;
  rl::test_params params;
  params.iteration_count = iterations;
  params.search_type = rl::random_scheduler_type;
  params.execution_depth_limit = 20'000;  // making the storage of records takes a thousand steps
  std::ostream quiet(nullptr);
  params.progress_stream = &quiet;
  params.output_stream = &quiet;
  const bool clean = rl::simulate<Kernel>(params);
  return {clean, clean ? "clean" : rl::test_result_str(params.test_result)};
}

/// Runs one kernel as shipped and with weakened orders.
template <class Kernel>
bool check_all(const char* name, unsigned long iterations) {
  const Verdict shipped = check<Kernel>(iterations, Weakened::nothing);
  const Verdict releases = check<Kernel>(iterations, Weakened::releases);
  const Verdict acquires = check<Kernel>(iterations, Weakened::acquires);
  const Verdict all = check<Kernel>(iterations, Weakened::all);
  const bool right = shipped.clean && !releases.clean && !acquires.clean && !all.clean;
  std::printf("%-12s %lu executions: as shipped: %s; releases relaxed: %s; acquires relaxed: %s; all relaxed: %s%s\n",
              name, iterations, shipped.what.c_str(), releases.what.c_str(), acquires.what.c_str(), all.what.c_str(),
              right ? "" : "  WRONG");
  std::fflush(stdout);
  return right;
}

/// Runs one kernel as shipped: for those that a weakened order would end the process of.
template <class Kernel>
bool check_shipped(const char* name, unsigned long iterations) {
  const Verdict shipped = check<Kernel>(iterations, Weakened::nothing);
  std::printf("%-12s %lu executions: as shipped: %s%s\n", name, iterations, shipped.what.c_str(),
              shipped.clean ? "" : "  WRONG");
  std::fflush(stdout);
  return shipped.clean;
}

}  // namespace
}  // namespace kvpool::model

int main(int argc, char** argv) {
  using namespace kvpool::model;
  const unsigned long iterations = argc > 1 ? std::stoul(argv[1]) : 20000;
  bool ok = check_all<StackKernel>("stack", iterations);
  ok &= check_all<TagKernel>("stack tag", iterations);
  ok &= check_all<RingKernel>("put and take", iterations);
  ok &= check_all<MoveKernel>("move", iterations);
  ok &= check_all<PublishKernel>("publish", iterations);
  ok &= check_all<SharedKernel>("shared", iterations);
  ok &= check_all<OverflowKernel>("overflow", iterations);
  ok &= check_all<CreditKernel>("credit", iterations);
  ok &= check_all<LateDeviceKernel>("late device", iterations);
  ok &= check_all<SecondaryKernel>("second key", iterations / 4);
  ok &= check_all<WalkKernel>("fence walk", iterations);
  ok &= check_all<EventKernel>("events", iterations / 4);
  ok &= check_shipped<EventGrowthKernel>("event growth", iterations / 20);
  ok &= check_all<RecycleKernel>("recycle", iterations / 4);
  ok &= check_all<FreeRecordsKernel>("free records", iterations);
  ok &= check_all<StorageKernel>("storage", iterations / 4);
  ok &= check_all<SharingKernel>("sharing", iterations);
  ok &= check_shipped<FirstUseKernel>("first use", iterations / 20);
  return ok ? 0 : 1;
}
