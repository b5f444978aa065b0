// A broken promise ends the process with a line that names it: that is what a fuzzer looks for.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace kvpool::fuzz {

inline void require(bool holds, const std::string& promise) {
  if (holds) {
    return;
  }
  std::fprintf(stderr, "broken promise: %s\n", promise.c_str());
  std::abort();
}

}  // namespace kvpool::fuzz
