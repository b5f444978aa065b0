// The function that libFuzzer calls; KVPOOL_FUZZ_TARGET is one of targets.hpp.
#include <cstddef>
#include <cstdint>

#include "targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvpool::fuzz::KVPOOL_FUZZ_TARGET({data, size});
  return 0;
}
