// The one place where the kernels meet oneTBB.
#pragma once

namespace kvpool::kernels {

/// Threads of the calling arena.
[[nodiscard]] int arena_threads();

/// Calls work(context) at least once, on up to `threads` threads (0: those of the calling arena) including the
/// caller's, and returns when all calls have.
void run_on_workers(int threads, void (*work)(void*), void* context);

}  // namespace kvpool::kernels
