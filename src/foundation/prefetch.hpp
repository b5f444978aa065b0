// Hints to the processor: start loading a line now.
#pragma once

namespace kvpool {

/// The line will be read.
inline void prefetch_to_read(const void* line) noexcept { __builtin_prefetch(line); }

/// The line will be written: asks for it alone, so that the write need not ask again. The compilers use the
/// instruction only where they are told that every processor has it; all of the last ten years do, and older ones
/// take it for a no-op.
inline void prefetch_to_write(const void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace kvpool
