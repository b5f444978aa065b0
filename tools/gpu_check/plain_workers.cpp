// Workers for the host code of the kernels on machines without oneTBB: plain threads.
#include <algorithm>
#include <thread>
#include <vector>

#include "kernels/cpu/tbb_workers.hpp"

namespace kvpool::kernels {

int arena_threads() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

void run_on_workers(int threads, void (*work)(void*), void* context) {
  const int count = threads == 0 ? arena_threads() : std::min(threads, arena_threads());
  std::vector<std::thread> others;
  for (int i = 1; i < count; ++i) others.emplace_back(work, context);
  work(context);
  for (std::thread& other : others) other.join();
}

}  // namespace kvpool::kernels
