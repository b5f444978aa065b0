// Independent pieces of work on the threads of oneTBB, or on the calling thread alone.
#pragma once

#include <cstdint>
#include <functional>

namespace kvpool::kernels {

/// Threads that parallel_for() will use for a limit: 0 stands for the calling arena's number.
[[nodiscard]] int thread_count(int max_threads);

/// Calls body(i) for i in [0, count), each once, in any order. With one thread everything runs in the caller, in order,
/// and the thread library is not touched. Blocking.
void parallel_for(std::int64_t count, int max_threads, const std::function<void(std::int64_t)>& body);

}  // namespace kvpool::kernels
