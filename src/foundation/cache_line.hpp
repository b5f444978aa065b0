// Size of a cache line for padding: what two cores fight over.
#pragma once

#include <cstddef>

namespace kvpool {

// A constant of our own: clang 14 has no std::hardware_destructive_interference_size in C++20 mode,
// and the library's memory layout must not depend on a compiler flag.
inline constexpr std::size_t kCacheLineBytes = 64;

}  // namespace kvpool
