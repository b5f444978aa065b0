#include "tools/bench/machine.hpp"

#include <sys/utsname.h>

#include <fstream>
#include <thread>

namespace kvpool::tools {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(": ");
      return colon == std::string::npos ? line : line.substr(colon + 2);
    }
  }
  return "unknown";
}

}  // namespace

Json machine_json() {
  utsname system{};
  uname(&system);
#if defined(__clang__)
  const std::string compiler = std::string("clang ") + __clang_version__;
#else
  const std::string compiler = std::string("gcc ") + __VERSION__;
#endif
  return {{"processor", processor_name()},
          {"logical_processors", std::thread::hardware_concurrency()},
          {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
          {"compiler", compiler}};
}

std::optional<std::string> unfit_build() {
#if defined(KVPOOL_SANITIZED_BUILD)
  return "this build carries a sanitizer, its figures would mean nothing; use the preset release or dev";
#elif !defined(NDEBUG) || !defined(__OPTIMIZE__)
  return "this is a debug build, its figures would mean nothing; use the preset release or dev";
#else
  return std::nullopt;
#endif
}

}  // namespace kvpool::tools
