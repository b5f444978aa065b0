#include "kernels/cpu/thread_work.hpp"

#include <tbb/blocked_range.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>

namespace kvpool::kernels {

int thread_count(int max_threads) { return max_threads > 0 ? max_threads : tbb::this_task_arena::max_concurrency(); }

void parallel_for(std::int64_t count, int max_threads, const std::function<void(std::int64_t)>& body) {
  if (max_threads == 1 || count <= 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  const auto spread = [&] {
    tbb::parallel_for(
        tbb::blocked_range<std::int64_t>(0, count, 1),
        [&](const tbb::blocked_range<std::int64_t>& range) {
          for (std::int64_t i = range.begin(); i != range.end(); ++i) body(i);
        },
        tbb::simple_partitioner{});
  };
  if (max_threads == 0) {
    spread();
  } else {
    tbb::task_arena arena(std::min(max_threads, tbb::info::default_concurrency()));
    arena.execute(spread);
  }
}

}  // namespace kvpool::kernels
