#include "tools/bench/machine.hpp"

#include <sys/utsname.h>

#include <array>
#include <chrono>
#include <ctime>
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

/// As it was typed, the folder of the program left out.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line;
  std::string word;
  while (std::getline(file, word, '\0')) {
    line += line.empty() ? word.substr(word.rfind('/') + 1) : " " + word;
  }
  return line;
}

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 11> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts)};
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
          {"compiler", compiler},
          {"command", command_line()},
          {"date", today()}};
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
