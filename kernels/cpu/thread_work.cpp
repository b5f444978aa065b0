#include "kernels/cpu/thread_work.hpp"

#include <atomic>

#include "kernels/cpu/tbb_workers.hpp"

namespace kvpool::kernels {
namespace {

/// Hands out the numbers 0 .. count - 1. What the workers read and write is ordered by the start and the end of
/// run_on_workers(); the counter only deals.
struct Queue {
  std::int64_t count;
  const std::function<void(std::int64_t)>& body;
  std::atomic<std::int64_t> next{0};

  static void work(void* queue) {
    auto& self = *static_cast<Queue*>(queue);
    while (true) {
      const std::int64_t i = self.next.fetch_add(1, std::memory_order_relaxed);
      if (i >= self.count) return;
      self.body(i);
    }
  }
};

}  // namespace

int thread_count(int max_threads) { return max_threads > 0 ? max_threads : arena_threads(); }

void parallel_for(std::int64_t count, int max_threads, const std::function<void(std::int64_t)>& body) {
  if (max_threads == 1 || count <= 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  Queue queue{count, body};
  run_on_workers(max_threads, Queue::work, &queue);
}

}  // namespace kvpool::kernels
