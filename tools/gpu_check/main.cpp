// gpu_check STEP --out FOLDER: one step of the check on a machine with a GPU; run.sh calls them in order.
// Exit status: 0 done and right, 1 something is wrong, 2 bad command line, 3 no device.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kvpool/kernels/backend.hpp"
#include "tools/gpu_check/report.hpp"
#include "tools/gpu_check/steps.hpp"

namespace {

constexpr int kBadCommandLine = 2;
constexpr int kNoDevice = 3;

int usage() {
  std::printf(
      "usage: gpu_check STEP --out FOLDER\n"
      "  smoke correctness few bars profile memory   steps that need a device\n"
      "  hold GIGABYTES SECONDS                      the neighbour of the memory step\n"
      "  results                                     table of all rows in FOLDER, and results.json\n");
  return kBadCommandLine;
}

int run_step(const std::string& step, const std::string& folder, const char* program) {
  using namespace kvpool::gpu_check;
  if (step == "profile") {
    run_for_profiler();
    return 0;
  }
  Report report(folder, step == "few" ? "sanitizer" : step);
  if (step == "smoke" || step == "few" || step == "correctness") {
    check_correctness(report, step != "correctness");
  } else if (step == "bars") {
    measure_bars(report);
  } else if (step == "memory") {
    check_memory(report, program);
  } else {
    return usage();
  }
  return report.failures() == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string step = argc > 1 ? argv[1] : "";
  std::string folder = ".";
  for (int i = 2; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--out") == 0) folder = argv[i + 1];
  }
  if (step.empty() || step == "--help") return usage();
  if (step == "results") return kvpool::gpu_check::print_results(folder);
  const kvpool::Status device = kvpool::kernels::backend_available(kvpool::kernels::Backend::cuda);
  if (!device) {
    std::printf("no device: %s\n", device.error().message.c_str());
    return kNoDevice;
  }
  if (step == "hold" && argc > 3) {
    return kvpool::gpu_check::hold_memory(std::strtod(argv[2], nullptr), std::strtod(argv[3], nullptr));
  }
  return run_step(step, folder, argv[0]);
}
